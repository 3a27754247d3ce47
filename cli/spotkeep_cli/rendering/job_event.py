"""A job's events in a person's words. The log shows them where the raw `spotkeep-event:` lines stood."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from spotkeep_cli.rendering import quantities
from spotkeep_jobs.progress.job_events import JobEventKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_jobs.progress.job_events import JobEvent

_LARGEST_FIGURE = 10**15
_VERSIONS = (("Python", "python"), ("spotkeep", "spotkeep"))


def event_text(event: JobEvent) -> str:
    """Return one line for an event, with its training where the script has several."""
    return _of_training(event, _text(event))


def _text(event: JobEvent) -> str:
    fields = event.fields
    match event.kind:
        case JobEventKind.START:
            versions = [f"{name} {fields[key]}" for name, key in _VERSIONS if fields.get(key)]
            return ", ".join(["started", *versions])
        case JobEventKind.INSTALLING:
            return f"installs what {fields.get('what', 'the source')} asks for"
        case JobEventKind.INSTALLED:
            return f"packages are there{_saved_details(fields)}: {fields.get('reason', 'no reason given')}"
        case JobEventKind.ENVIRONMENT_CACHED:
            return f"kept the packages in {fields.get('what', 'S3')}{_saved_details(fields)}"
        case JobEventKind.ENVIRONMENT_NOT_CACHED:
            problem = fields.get("problem", "no reason given")
            if fields.get("reason") == "installed anew":
                return f"installs the packages anew: {problem}"
            return f"the packages are not kept in {fields.get('what', 'S3')}: {problem}"
        case JobEventKind.SET_UP:
            return f"setup is done{_saved_details(fields)}"
        case JobEventKind.RESUME:
            if not event.step:
                return "found no checkpoint, starts from the beginning"
            checkpoint = fields.get("checkpoint")
            return f"resumed after step {event.step:,}" + (f", from {checkpoint}" if checkpoint else "")
        case JobEventKind.PROGRESS:
            return _progress_text(event)
        case JobEventKind.METRICS:
            return f"measured{_step(event)}{_metrics(event)}"
        case JobEventKind.SAVED:
            return f"saved step {event.step or 0:,}{_saved_details(fields)}"
        case JobEventKind.SAVE_FAILED:
            return f"could not save step {event.step or 0:,}: {fields.get('problem', 'no reason given')}"
        case JobEventKind.FALLBACK:
            return f"skipped a damaged checkpoint of step {event.step or 0:,}: {fields.get('problem', 'unreadable')}"
        case JobEventKind.PUT_ASIDE:
            return f"put aside what was cut off: {fields.get('what', 'a file')}: {fields.get('problem', 'unreadable')}"
        case JobEventKind.SCHEDULE:
            seconds = _finite(fields.get("seconds"))
            return f"saves every {'?' if seconds is None else quantities.duration(seconds)}: {fields.get('reason', '')}"
        case JobEventKind.UPLOADED:
            return f"uploaded step {event.step or 0:,}{_saved_details(fields)}"
        case JobEventKind.UPLOAD_FAILED:
            return f"could not upload step {event.step or 0:,}: {fields.get('problem', 'no reason given')}"
        case JobEventKind.UPLOAD_LATE:
            return _lateness(event)
        case JobEventKind.DOWNLOADED:
            return f"downloaded step {event.step or 0:,}{_saved_details(fields)}"
        case JobEventKind.NOTICE:
            left = _finite(fields.get("seconds_left"))
            remaining = f", {quantities.duration(left)} left to save" if left is not None else ""
            # SIGTERM says the same when capacity goes, when a user stops the run, and when its time is over.
            return f"was asked to end{remaining}"
        case JobEventKind.PAUSED:
            return f"paused after step {event.step or 0:,}"
        case JobEventKind.FINISH:
            return f"finished after step {event.step or 0:,}"
        case JobEventKind.STUCK:
            silent = _finite(fields.get("seconds"))
            shown = "too long" if silent is None else quantities.duration(silent)
            return f"stands still, no step and no line for {shown}{'; it is ended' if 'at_most' in fields else ''}"
        case JobEventKind.MOVES_AGAIN:
            return "moves again"
        case JobEventKind.EXIT_ON_NOTICE:
            meaning = "counts as done, because it was not the first time" if fields.get("code") == 0 else "starts again"
            return f"ended with code 0 on a notice and did not say that it is done: {meaning}"
        case JobEventKind.EXIT:
            return f"exited with code {fields.get('code', '?')}"
        case JobEventKind.INSTANCE_TRAINING:
            return f"{_instance(fields)} starts the training{_phases(fields.get('phases'))}"
        case JobEventKind.INSTANCE_FIRST_STEP:
            return f"the first step here, {event.step or 0:,}, is done{_phases(fields.get('phases'))}"
        case JobEventKind.IMAGE_PULLING:
            return f"pulls {fields.get('what', 'its image')}"
        case JobEventKind.IMAGE_PULLED:
            digest = f": {fields['digest']}" if fields.get("digest") else ""
            return f"the image is there{_saved_details(fields)}{digest}"
        case JobEventKind.INSTANCE_LEAVING:
            return f"the instance leaves: {fields.get('reason', 'no reason given')}"
        case JobEventKind.INSTANCE_LEFT:
            return f"{_instance(fields)} left: {fields.get('why', 'no reason given')}"
        case JobEventKind.WORLD_BEGAN:
            hosts = _finite(fields.get("hosts"))
            since = f"step {event.step:,}" if event.step else "the beginning"
            who = "the nodes train" if hosts is None else "1 node trains" if hosts == 1 else f"{hosts:.0f} nodes train"
            return f"{who} from {since}"
        case JobEventKind.NODE_JOINED:
            return f"node {fields.get('instance', '?')} is there"
        case JobEventKind.NODE_LEFT:
            return f"node {fields.get('instance', '?')} is gone: {fields.get('reason', 'no reason given')}"
        case JobEventKind.INSTANCE_SCRIPT_FAILED:
            return (
                f"the script failed with exit code {fields.get('exit_code', '?')}, "
                f"failure {fields.get('script_failures', '?')}; it is started again"
            )
        case JobEventKind.INSTANCE_FINISHED:
            return f"{_instance(fields)} is done"
        case JobEventKind.INSTANCE_FAILED:
            why = (
                f"exit code {fields['exit_code']}"
                if fields.get("exit_code")
                else fields.get("failure", "no reason given")
            )
            return f"{_instance(fields)} gives up: {why}"
        case JobEventKind.OUTPUT_SENT:
            return f"sent {fields.get('uri', 'its output')}"
        case JobEventKind.NOT_IN_S3:
            return (
                f"not in S3: {fields.get('what', 'something')} ({fields.get('problem', 'no reason given')}); "
                "it is on the volume, which is kept"
            )


def _instance(fields: Mapping[str, Any]) -> str:
    return f"instance {fields.get('instance', '?')} in {fields.get('zone', '?')}"


def _phases(phases: Any) -> str:
    """Return the seconds of each phase of the boot, such as `, after volume 0.8 s, supplies 0.1 s`."""
    if not isinstance(phases, dict):
        return ""
    taken = [f"{name} {seconds:.1f} s" for name, seconds in phases.items() if isinstance(seconds, int | float)]
    return f", after {', '.join(taken)}" if taken else ""


def _of_training(event: JobEvent, text: str) -> str:
    training = event.fields.get("training")
    return text if training is None else f"{training}: {text}"


def _progress_text(event: JobEvent) -> str:
    total = total_steps(event)
    of = f" of {total:,}" if total else ""
    return f"step {event.step or 0:,}{of}{_metrics(event)}"


def _metrics(event: JobEvent) -> str:
    metrics = event.fields.get("metrics")
    return metrics_text(metrics) if isinstance(metrics, dict) else ""


def metrics_text(metrics: Mapping[str, Any]) -> str:
    """Return metrics with two spaces before each, such as `  loss 0.213  accuracy 0.9`."""
    return "".join(f"  {name} {_number(value)}" for name, value in metrics.items())


def _step(event: JobEvent) -> str:
    return "" if event.step is None else f" at step {event.step:,}"


def total_steps(event: JobEvent) -> int | None:
    """Return the number of all steps of the job, where it reported one."""
    total = event.fields.get("total_steps")
    return total if isinstance(total, int) and not isinstance(total, bool) and total > 0 else None


def _saved_details(fields: Mapping[str, Any]) -> str:
    details = []
    if (count := _finite(fields.get("bytes"))) is not None:
        details.append(quantities.size(int(count)))
    if (seconds := _finite(fields.get("seconds"))) is not None:
        details.append(f"{seconds:.2g}s")
    reason = fields.get("reason")
    because = f", on {reason}" if reason in ("notice", "sigterm") else ""
    return (f" ({', '.join(details)})" if details else "") + because


def _lateness(event: JobEvent) -> str:
    seconds, uploaded = _finite(event.fields.get("seconds")), event.fields.get("uploaded_step")
    waiting = "" if seconds is None else f" for {quantities.duration(seconds)}"
    newest = f"step {uploaded:,}" if isinstance(uploaded, int) else "nothing"
    return f"checkpoints have been waiting{waiting} to reach S3, which has {newest} of {event.step or 0:,}"


def _finite(value: Any) -> float | None:
    """Return a figure that a script reported, where it is one. A log may hold anything."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST_FIGURE:
        return None
    return value if math.isfinite(value) else None


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
