"""Draws a launch before it starts.

The drawing shows the instances, the installation before the command, the limits and the highest cost.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Fact, facts
from spotkeep_cli.rendering.lists import fires_at, match_in_a_plan, rhythm
from spotkeep_jobs.document.capacity import (
    Fallback,
    affordable_seconds,
    fallbacks_of,
    has_local_disks,
    local_disks_gb,
    types_of,
)
from spotkeep_jobs.document.distributed import AUTO, NO_RANKS
from spotkeep_jobs.document.image import patched_until
from spotkeep_jobs.document.nodes import hosts_in_words, hosts_of
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.spending import worst_case_usd
from spotkeep_jobs.document.times import DEFAULT_STUCK_RESTARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from spotkeep_cli.launching.judgement import Judgement
    from spotkeep_cli.launching.preparation import PreparedJob

_SECONDS_PER_HOUR = 3600
_LINES_SHOWN = 3
_OFFERS_SHOWN = 3


def launch_view(judgement: Judgement, *, prepared: PreparedJob, where: str, now: datetime) -> RenderableType:
    """Draw a launch before it starts.

    Args:
        judgement: The request with its defaults, and the price.
        prepared: The job with its packed source.
        where: The deployment in words, for example `spotkeep in us-east-1`.
        now: The time, for deadlines and the remaining time of a warm pool.
    """
    request = judgement.request
    heading = Text.assemble((_ids(prepared.payload.get("run", ""), request), "bold"), "  would be launched")
    if judgement.sweep is not None:
        sweep = facts(_sweep_rows(judgement))
        each = facts(_rows(request, judgement=judgement, prepared=prepared, where=where, now=now))
        return Group(heading, sweep, Text("  each trial, as the first one", style="dim"), each)
    return Group(heading, facts(_rows(request, judgement=judgement, prepared=prepared, where=where, now=now)))


def _schedule_rows(judgement: Judgement) -> list[Fact]:
    schedule = judgement.schedule
    if schedule is None:
        return []
    first = f"; first at {fires_at(schedule['next_firing'])}" if "next_firing" in schedule else ""
    return [("schedule", f"{rhythm(schedule['expression'], schedule['timezone'])}{first}, until you remove it")]


def _sweep_rows(judgement: Judgement) -> list[Fact]:
    from spotkeep_cli.sweeps.sweep_view import search_in_words
    from spotkeep_jobs.sweeps.document import SweepRequest

    request = SweepRequest.model_validate(judgement.sweep)
    rows: list[Fact] = [
        ("sweep", f"{judgement.most_trials:,} trials, {request.parallel} at a time"),
        ("search", search_in_words(request)),
    ]
    if judgement.worst_case_usd is not None:
        rows.append(("all trials", f"at most {quantities.dollars(judgement.worst_case_usd)} of instance time"))
    return rows


def _ids(run: Any, request: Mapping[str, Any]) -> str:
    count = int(request.get("runs") or 1)
    return str(run) if count == 1 else f"{run}-1 to {run}-{count}"


def cost_ceiling_usd(request: Mapping[str, Any], *, usd_per_hour: float | None, now: datetime) -> float | None:
    """Return the highest cost of a run in instance time.

    On SageMaker it is the worst case that the launcher compares with its limit. On EC2 the launcher also counts the
    time that a fleet may wait. Here it is the longest training on every instance at the on-demand price. A run with a
    deadline may train until then, including repeated work. A job that works at the deadline goes on to its max_run. The
    cost is never more than `max_cost`. Spot is never dearer. Storage, requests and data transfer are not in it. None
    when the price is not known.
    """
    if usd_per_hour is None or not isinstance(request.get("max_run"), int):
        return None
    if request.get("backend") != "ec2":
        job = JobRequest.model_validate(dict(request))
        return worst_case_usd(job, prices=dict.fromkeys(types_of(job), usd_per_hour), now=now)
    seconds = request.get("max_total_run") or request["max_run"] + _seconds_to_deadline(request, now=now)
    ceiling = float(seconds / _SECONDS_PER_HOUR * hosts_of(request) * usd_per_hour)
    return ceiling if request.get("max_cost") is None else min(ceiling, float(request["max_cost"]))


def _seconds_to_deadline(request: Mapping[str, Any], *, now: datetime) -> float:
    if request.get("deadline") is None:
        return 0.0
    at = JobRequest.model_validate(dict(request)).deadline_at(now) or now
    return max(0.0, (at - now).total_seconds())


def places(request: Mapping[str, Any]) -> list[str]:
    """Return the places that a run asks for capacity, one line a fallback.

    Args:
        request: The validated job document.
    """
    count = request.get("instance_count", 1)
    counted = f"{count} x " if count > 1 else ""
    if request.get("backend") == "ec2":
        among = " or ".join(request.get("instance_types") or ["the default types"])
        return [
            f"{'then ' if how.startswith('on-demand') and number else ''}{among}, {how}"
            for number, how in enumerate(_fleets(request))
        ]
    volume_gb = request.get("volume_size_gb", 30)
    if request.get("capacity", "spot") != "auto":
        types = request.get("instance_types") or [request.get("instance_type") or "the default type"]
        storage = _storage(types, volume_gb=volume_gb)
        return [f"{counted}{' or '.join(types)}, {request.get('capacity', 'spot')}, {storage}"]
    return [
        f"{'' if not number else 'then '}{counted}{' or '.join(fallback.instance_types)}, {fallback.capacity}, "
        f"{_storage(fallback.instance_types, volume_gb=volume_gb)}{_how_long(fallback)}"
        for number, fallback in enumerate(fallbacks_of(JobRequest.model_validate(dict(request))))
    ]


def _storage(types: Sequence[str], *, volume_gb: int) -> str:
    """Return the storage of an instance. It is its own disks where it has some, else its volume."""
    sizes = [local_disks_gb(each) if has_local_disks(each) else volume_gb for each in types]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return "on disks of their own"
    least, most = min(known), max(known)
    return f"{least:,} GB each" if least == most else f"{least:,} to {most:,} GB each"


def _fleets(request: Mapping[str, Any]) -> list[str]:
    """Return the number of EC2 fleets, one line for each kind of capacity."""
    capacity, count, base = request.get("capacity", "spot"), *_counts(request)
    if capacity == "auto" and not (count == 1 and base):
        return _fleets_in_turn(request)
    if count == 1:
        return [f"{'on-demand' if base else capacity}, an EC2 fleet of {_size(request)}"]
    if not base:
        return [f"{capacity}, {count} EC2 fleets of {_size(request)}"]
    return [
        f"{what}, {quantities.counted(len(which), 'EC2 fleet')} of {_size(request)}: {_span(which)}"
        for which, what in ((range(1, base + 1), "on-demand"), (range(base + 1, count + 1), capacity))
        if which
    ]


def _fleets_in_turn(request: Mapping[str, Any]) -> list[str]:
    """Return a line for each fallback of runs that go on demand by themselves."""
    count, base = _counts(request)
    one = "an EC2 fleet" if count - base == 1 else f"{count - base} EC2 fleets"
    which = f": {_span(range(base + 1, count + 1))}" if base else ""
    lines = [
        f"{fallback.capacity}, {one} of {_size(request)}{which}{_how_long(fallback)}"
        for fallback in fallbacks_of(JobRequest.model_validate(dict(request)))
    ]
    if base:
        on_demand = (
            f"on-demand, {quantities.counted(base, 'EC2 fleet')} of {_size(request)}: {_span(range(1, base + 1))}"
        )
        lines.insert(0, on_demand)
    return lines


def _size(request: Mapping[str, Any]) -> str:
    """Return the size of a fleet."""
    return "one instance" if hosts_of(request) == 1 else f"{hosts_in_words(request)} nodes in one zone"


def _span(numbers: range) -> str:
    return f"run {numbers[0]}" if len(numbers) == 1 else f"runs {numbers[0]} to {numbers[-1]}"


def _counts(request: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of runs, and of those on demand while the others are spot."""
    return int(request.get("runs") or 1), int(request.get("on_demand_base") or 0)


def _how_long(fallback: Fallback) -> str:
    if fallback.longest_wait_seconds is not None:
        return f", for up to {quantities.duration(fallback.longest_wait_seconds)} of waiting"
    return ", as long as the deadline allows" if fallback.capacity == "spot" else ""


def _rows(
    request: Mapping[str, Any], *, judgement: Judgement, prepared: PreparedJob, where: str, now: datetime
) -> list[Fact]:
    rows: list[Fact] = [
        ("deployment", where),
        *_schedule_rows(judgement),
        ("command", _what_runs(request)),
    ]
    if (asked := request.get("distributed")) and asked["launcher"] != NO_RANKS:
        rows.append(("ranks", _ranks(asked, instances=hosts_in_words(request))))
    if (count := _counts(request)[0]) > 1:
        own = "fleet, volume and checkpoints" if hosts_of(request) == 1 else "fleet of nodes and checkpoints"
        rows.append(("runs", f"{count}, independent: each with its own {own}"))
    if source := _source(request, prepared=prepared):
        rows.append(("source", source))
    rows += installation_rows(request, prepared=prepared)
    rows += [("runs on" if not number else "", place) for number, place in enumerate(places(request))]
    if (queue := request.get("queue")) is not None:
        share, priority = request.get("share") or "its only one", request.get("priority") or 0
        rows.append(("queue", f"{queue}, share {share}, priority {priority}"))
    if request.get("image") is not None:
        rows.append(("image", request["image"]))
        if (last_patch := patched_until(request["image"])) is not None:
            rows.append(("", f"AWS patches it until {last_patch}"))
    if request.get("backend") == "ec2":
        rows += _on_ec2(request, offers=judgement.spot_offers)
    if request.get("capacity") == "on-demand" and (judgement.pools or request.get("keep_alive")):
        rows.append(("warm pool", match_in_a_plan(judgement.pools, now=now)))
    rows.append(("at most", _limits(request, usd_per_hour=judgement.usd_per_hour)))
    if channels := request.get("channels"):
        rows += [("data", _channel(channel)) for channel in channels]
    checkpoints = request.get("checkpoint_prefix") or "in the deployment's bucket"
    if (shared := request.get("checkpoint_channel")) is not None:
        checkpoints = f"in the channel {shared}; copies: {checkpoints}"
    if not request.get("checkpoints", True):
        on_volume = "none in S3: what the script saves is on the volume alone"
        checkpoints = on_volume if request.get("backend") == "ec2" else "none: it starts from zero"
    rows.append(("checkpoints", checkpoints))
    if (pause := request.get("pause_at_step")) is not None:
        rows.append(("pauses", f"after step {pause:,}, until spotkeep resume RUN says how far it goes on"))
    if stuck := request.get("stuck"):
        restarts = f"starts again, at most {stuck.get('at_most') or DEFAULT_STUCK_RESTARTS} times a job"
        then = restarts if stuck.get("restart") else "sends a notification"
        rows.append(("stuck", f"{then}, after {quantities.duration(stuck['after'])} without a step and a line"))
    if mlflow := request.get("mlflow"):
        experiment = f", experiment {mlflow['experiment']}" if mlflow.get("experiment") else ""
        rows.append(("mlflow", f"{mlflow['tracking_uri']}{experiment}"))
    if wandb := request.get("wandb"):
        owner = f"{wandb['entity']}/" if wandb.get("entity") else ""
        rows.append(("wandb", f"project {owner}{wandb['project']}, one run through all attempts"))
    if request.get("debug") and request.get("backend") != "ec2":
        rows.append(("shell", "spotkeep shell RUN opens one in the job while it trains"))
    if notify := request.get("notify"):
        rows.append(("notify", "when " + ", ".join(notify)))
    costs = _costs(request, judgement=judgement, now=now)
    rows += [("costs" if not number else "", cost) for number, cost in enumerate(costs)]
    rows += [("allowed" if not number else "", each) for number, each in enumerate(allowed(judgement))]
    return rows


def allowed(judgement: Judgement) -> list[str]:
    """Return the deployment's ceilings, and the run's share of its cost ceiling.

    Args:
        judgement: The launcher's. Of one without a deployment nothing is known.
    """
    limits = judgement.limits
    if not limits:
        return []
    shown = [f"instance types {', '.join(limits['allowed_instance_types'])}"]
    if limits["run_cost_limit_usd"] is not None and judgement.worst_case_usd is not None:
        shown.append(
            f"{quantities.dollars(limits['run_cost_limit_usd'])} of instance time a run; this one, "
            f"{quantities.dollars(judgement.worst_case_usd)} in the worst case"
        )
    if limits["volume_size_limit_gb"] is not None:
        shown.append(f"{limits['volume_size_limit_gb']:,} GB of storage each")
    if limits["runs_in_flight_limit"] is not None:
        shown.append(f"{quantities.counted(limits['runs_in_flight_limit'], 'run')} at a time")
    return shown


def _nodes(job: JobRequest) -> list[Fact]:
    fewest = "the rest" if job.nodes is None or job.nodes.min == job.nodes.max else f"{job.nodes.min} of them"
    wait = quantities.duration(job.nodes_wait_seconds)
    # The subnets are the deployment's, and not known here.
    then = "then another zone or type is tried, or the same again where there is no other"
    rows: list[Fact] = [("nodes", f"wait up to {wait} for {fewest}, on the bill; {then}")]
    if job.network is not None and job.network.placement is not None:
        rows.append(("network", "close together in their zone, in a cluster placement group"))
    if job.network is not None and job.network.efa:
        rows.append(("network" if len(rows) == 1 else "", "with an Elastic Fabric Adapter each"))
    if job.volume is not None:
        rows.append(("disks", f"{job.volume.size_gb:,} GiB of root disk each, deleted with their nodes"))
    return rows


def _on_ec2(request: Mapping[str, Any], *, offers: Sequence[Mapping[str, Any]]) -> list[Fact]:
    job = JobRequest.model_validate(dict(request))
    volume = job.volume_or_default
    begins = f", from {volume.snapshot}" if volume.snapshot else ""
    if job.several_nodes is not None:
        rows = _nodes(job)
    elif volume.volume:
        rows = [("volume", f"{volume.volume}, your own: it is never deleted")]
    else:
        after = "kept when it is done" if volume.when_done == "keep" else "deleted when it has completed"
        each = "" if _counts(request)[0] == 1 else " for each"
        rows = [("volume", f"{volume.size_gb:,} GiB of {volume.type}{each}{begins}, {after}")]
    if request.get("capacity") == "on-demand":
        return rows
    each_node = "" if job.several_nodes is None else " each"
    limit = (
        f"; at most {quantities.dollars(request['max_price'])} an hour{each_node}" if request.get("max_price") else ""
    )
    for number, offer in enumerate(offers[:_OFFERS_SHOWN]):
        price = f"{quantities.dollars(offer['spot_usd_per_hour'])} an hour{each_node}"
        rows.append(("spot now" if not number else "", f"{price}, {offer['instance_type']} in {offer['zone']}"))
    left = len(offers) - _OFFERS_SHOWN
    if left > 0:
        rows.append(("", f"and {quantities.counted(left, 'more place')}{limit}"))
    elif limit:
        rows.append(("", limit.removeprefix("; ")))
    return rows


def installation_rows(request: Mapping[str, Any], *, prepared: PreparedJob) -> Iterator[Fact]:
    """Yield the rows about installation.

    They name the packages, the place where a restart and the next job find them, and the setup of a machine.

    Args:
        request: The validated job document.
        prepared: The job with its packed source.
    """
    if request.get("command") is None:
        return  # An image's own entry point runs: nothing is done before it.
    if installed := _installed(request, prepared=prepared):
        place = "on the run's volume" if request.get("backend") == "ec2" else "in S3"
        if request.get("nodes") and hosts_of(request) > 1:
            place = "on its node"
        pool = ", the next job on the warm pool in its cache" if request.get("keep_alive") else ""
        yield "installs", f"{installed}; a restart finds it {place}{pool}"
    if setup := request.get("setup"):
        yield "setup", f"{_command(setup)}, once a machine"


def _installed(request: Mapping[str, Any], *, prepared: PreparedJob) -> str:
    """Return the packages to install before the command. Empty for none, or where this machine does not know them."""
    install = request.get("install", "none")
    if not isinstance(install, str):
        return ", ".join(install)
    if install != "auto":
        return "" if install == "none" else f"what {install} asks for"
    files = {str(path) for path in prepared.archive.files} if prepared.archive else set()
    found = next((name for name in ("requirements.txt", "pyproject.toml") if name in files), None)
    return f"what {found} asks for" if found else ""


def _command(command: Any) -> str:
    """Return a command as it is run.

    Of a block, return the first lines. Two lines must not be taken for one command.
    """
    if not isinstance(command, str):
        return shlex.join(str(word) for word in command or ())
    lines = [line.strip() for line in command.splitlines() if line.strip()]
    shown = [*lines[:_LINES_SHOWN], *(["..."] if len(lines) > _LINES_SHOWN else [])]
    return f"{quantities.counted(len(lines), 'line')} for bash: {'; '.join(shown)}" if "\n" in command else command


def _ranks(asked: Mapping[str, Any], *, instances: str) -> str:
    """Return the ranks that a job starts."""
    each = asked["processes"]
    of_auto = "one for each GPU, else for each Neuron core, else one"
    where = "the instance" if instances == "1" else f"each of {instances} instances"
    return f"{asked['launcher']} starts {of_auto if each == AUTO else quantities.counted(each, 'rank')}, on {where}"


def _channel(channel: Mapping[str, Any]) -> str:
    kind = f" ({channel['content_type']})" if channel.get("content_type") else ""
    if uri := channel.get("uri"):
        return f"{channel['name']}: {uri}{kind}"
    service, name = ("FSx", channel["fsx"]) if channel.get("fsx") else ("EFS", channel["efs"])
    return f"{channel['name']}: {service} {name}, {channel['path']}, {channel['access']}{kind}"


def _what_runs(request: Mapping[str, Any]) -> str:
    if request.get("command"):
        return _command(request["command"])
    algorithm = request.get("algorithm")
    return f"none: algorithm {algorithm} runs" if algorithm else "none: the image's own entry point runs"


def _source(request: Mapping[str, Any], *, prepared: PreparedJob) -> str:
    archive = prepared.archive
    if archive is not None:
        files = f"{quantities.counted(len(archive.files), 'file')}, " if archive.files else ""
        named = prepared.document.fields["source"]
        return f"{named} ({files}{quantities.size(len(archive.content))} packed)"
    source = request.get("source")
    if isinstance(source, dict) and "uri" in source:
        return f"{source['uri']}, SHA-256 {str(source.get('sha256'))[:12]}"
    if isinstance(source, dict):
        return f"{source.get('git')} at {str(source.get('commit'))[:12]}"
    return str(source or "")


def _limits(request: Mapping[str, Any], *, usd_per_hour: float | None) -> str:
    a_job, longest = request.get("max_run"), request.get("max_total_run") or request.get("max_run")
    steered = request.get("deadline") is not None and not request.get("max_total_run")
    paid = _paid_seconds(request, usd_per_hour=usd_per_hour)
    if paid is not None and longest is not None and not steered and paid >= longest:
        paid = None
    if paid is not None and request.get("capacity") == "on-demand" and not _may_have_fewer_nodes(request):
        parts = [f"{quantities.duration(paid)} of training, for which max_cost pays"]
        if a_job is not None and a_job < paid:
            parts.append(f"{quantities.duration(a_job)} of training a job")
    else:
        # Spot, and fewer nodes than there may be, cost less, so that a run may train for longer.
        nodes = " of all nodes" if _may_have_fewer_nodes(request) else ""
        bound = f", of which max_cost pays {quantities.duration(paid)}{nodes} at the on-demand price" if paid else ""
        parts = [f"{quantities.duration(longest)} of training"]
        if request.get("max_total_run"):
            parts = [f"{parts[0]}{bound}", f"{quantities.duration(a_job)} of training a job"]
        elif steered:
            parts = [f"{parts[0]} a job, as many as its deadline asks for{bound}"]
        else:
            parts = [f"{parts[0]}{bound}"]
    if request.get("script_retries"):
        parts.append(f"{quantities.counted(request['script_retries'], 'new start')} of a script that fails")
    if request.get("max_wait"):
        parts.append(f"{quantities.duration(request['max_wait'])} in all, waiting included")
    if request.get("keep_alive"):
        parts.append(f"then {quantities.duration(request['keep_alive'])} of warm pool, billed")
    return ", ".join(parts)


def _paid_seconds(request: Mapping[str, Any], *, usd_per_hour: float | None) -> int | None:
    """Return the seconds of training that max_cost pays for on all instances, at the on-demand price.

    None where it bounds nothing, or the price is not known.
    """
    if usd_per_hour is None or request.get("max_cost") is None:
        return None
    job = JobRequest.model_validate(dict(request))
    prices = dict.fromkeys(types_of(job), usd_per_hour)
    return affordable_seconds(job, fallbacks_of(job)[0], spent_usd=0.0, prices=prices)


def _may_have_fewer_nodes(request: Mapping[str, Any]) -> bool:
    nodes = JobRequest.model_validate(dict(request)).several_nodes
    return nodes is not None and nodes.min < nodes.max


def _costs(request: Mapping[str, Any], *, judgement: Judgement, now: datetime) -> list[str]:
    count, base = _counts(request)
    if count == 1 and not base:
        return [_costs_of_one(request, judgement=judgement, now=now)]
    on_demand = {**request, "capacity": "on-demand", "max_price": None}
    return [
        f"{number} {which['capacity']}{', each' if number > 1 else ''}: "
        f"{_costs_of_one(which, judgement=judgement, now=now)}"
        for number, which in ((base, on_demand), (count - base, request))
        if number
    ]


def _costs_of_one(request: Mapping[str, Any], *, judgement: Judgement, now: datetime) -> str:
    hourly = judgement.usd_per_hour
    several, on_ec2 = hosts_of(request) > 1, request.get("backend") == "ec2"
    own, on_top = ("its volume", "the volume comes on top")
    if several:
        waits = "nodes that wait for others, and " if request.get("deadline") is None else ""
        own, on_top = ("root disks and waits", f"{waits}root disks{',' if waits else ''} come on top")
    if on_ec2 and request.get("max_cost"):
        return f"at most {quantities.dollars(request['max_cost'])} with {own} (max_cost), and the run ends before"
    if on_ec2 and request.get("capacity") == "spot" and request.get("max_price"):
        hourly = request["max_price"] if hourly is None else min(hourly, request["max_price"])
        ceiling = cost_ceiling_usd(request, usd_per_hour=hourly, now=now)
        return f"at most {quantities.dollars(ceiling)} of instance time, at max_price; {on_top}"
    if judgement.spot_offers and request.get("capacity") == "spot" and hourly is None:
        cheapest = judgement.spot_offers[0]["spot_usd_per_hour"]
        ceiling = cost_ceiling_usd(request, usd_per_hour=cheapest, now=now)
        return (
            f"{quantities.dollars(ceiling)} of instance time for all of max_run, at the lowest spot price of now, "
            f"which moves; {on_top}"
        )
    ceiling = cost_ceiling_usd(request, usd_per_hour=hourly, now=now)
    if ceiling is None:
        return "not known: the deployment has no price for this type"
    spot = "; spot usually costs far less" if request.get("capacity") != "on-demand" else ""
    return (
        f"at most {quantities.dollars(ceiling)} of instance time "
        f"({quantities.dollars(judgement.usd_per_hour)} an hour{' each' if several else ''} on demand{spot})"
        f"{f'; {on_top}' if several and on_ec2 else ''}"
    )
