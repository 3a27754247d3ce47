"""The nodes of a run on EC2, which are the instances that train together, and the network between them.

A run with nodes is a sequence of worlds. Each world is torchrun on the nodes that are there. A node has no volume that
follows the run. It trains on its root disk, and S3 has the checkpoints that all nodes share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from spotkeep_fleet.instance_job import MOST_NODES
from spotkeep_fleet.ranks import TORCHRUN
from spotkeep_jobs.document.reading import DocumentModel, Rule, WholeNumber, excluded, outlined, rule, shown, wrong
from spotkeep_jobs.document.times import DAY_SECONDS, DurationOf, format_duration
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.request import JobRequest

DEFAULT_NODES_WAIT_SECONDS: Final = 600
NodesWait = Annotated[int, DurationOf(lowest=60, highest=DAY_SECONDS)]


def hosts_of(document: Mapping[str, Any]) -> int:
    """Return the most instances that a run has at a time, of an accepted document as JSON."""
    nodes = document.get("nodes") or {}
    return max(int(document.get("instance_count") or 1), int(nodes.get("max", 1)))


def hosts_in_words(document: Mapping[str, Any]) -> str:
    """Return the number of instances of a run in words, such as `1` or `2 to 8`, of an accepted document as JSON."""
    nodes = document.get("nodes")
    return f"{hosts_of(document)}" if nodes is None else str(NodesRange.model_validate(nodes))


def read_nodes(value: object) -> object:
    """Turn a number alone into a range of that number."""
    if isinstance(value, Mapping | DocumentModel):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_NODES:
        return {"min": value, "max": value}
    raise wrong(
        f"is neither a whole number of 1 to {MOST_NODES} nor a range",
        "Write a number, as 2, or a range, as {min: 2, max: 8}",
    )


def read_instance_count(value: object) -> object:
    """Refuse a range, which only nodes take."""
    if isinstance(value, Mapping) and {"min", "max"} & value.keys():
        raise wrong(
            "is a range, and a job of SageMaker has one number of instances",
            "Write one number. Or let the number change while it trains: backend: ec2, with nodes: {min: 2, max: 8}",
        )
    return value


def problem_without_backend(document: Mapping[Any, Any]) -> Problem | None:
    """Return the problem of a document with nodes that names no backend. None for any other.

    With the types of SageMaker it is as likely that `instance_count` was meant, and `RULES` have the words for that.
    """
    nodes, types = document.get("nodes"), document.get("instance_types") or document.get("instance_type")
    named = types if isinstance(types, list | tuple) else [types]
    of_sagemaker = any(isinstance(each, str) and each.startswith("ml.") for each in named)
    if document.get("backend") is not None or nodes is None or of_sagemaker:
        return None
    return Problem(
        field="nodes",
        found=shown(nodes),
        problem="is for EC2, and a job without backend runs on SageMaker",
        fix="Add backend: ec2.",
    )


class NodesRange(DocumentModel):
    """The number of nodes that train together."""

    min: WholeNumber = Field(ge=1, le=MOST_NODES, examples=[2])
    """The fewest nodes that train, 1 to 64. With fewer the others wait, saved."""
    max: WholeNumber = Field(ge=1, le=MOST_NODES, examples=[8])
    """The nodes that the fleet asks for, 1 to 64."""

    def __str__(self) -> str:
        return f"{self.max}" if self.min == self.max else f"{self.min} to {self.max}"


class NetworkRequest(DocumentModel):
    """The network between the nodes of a run on EC2."""

    placement: Literal["cluster"] | None = Field(default=None, examples=["cluster"])
    """cluster places all nodes close together in their zone, where there is less capacity. Default: anywhere in it."""
    efa: bool = Field(default=False, strict=True)
    """True gives each node an Elastic Fabric Adapter. Its instance types need support for it."""


_BEGINS_EMPTY: Final = "a node has no volume that follows the run, and begins on an empty root disk"
_NODE_DISK: Final = "is given with several nodes, which train on their root disks: of volume only size_gb counts"
_VOLUME_FIXES: Final[Mapping[str, str]] = {
    "volume": "Remove it, and copy its data to S3 as a channel. Or remove nodes.",
    "snapshot": "Remove it, and copy its data to S3 as a channel. Or remove nodes.",
}


@rule("nodes")
def _range_has_an_order(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    asked = request.nodes
    if asked is not None and asked.min > asked.max:
        yield Problem(
            field="nodes.min",
            found=str(asked.min),
            problem=f"is above nodes.max ({asked.max})",
            fix=f"Give {asked.max} at most, or raise nodes.max.",
        )


@rule("backend", "nodes", "distributed")
def _nodes_can_train_together(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    nodes = request.several_nodes
    if nodes is None or (request.distributed is not None and request.distributed.launcher == TORCHRUN):
        return
    yield Problem(
        field="distributed",
        found="nothing" if request.distributed is None else request.distributed.launcher,
        problem=f"is not torchrun, and nodes: {nodes} train together by torchrun alone",
        fix="Write distributed: torchrun. For independent trainings write runs: instead of nodes.",
    )


@rule("backend", "nodes", "checkpoints")
def _nodes_have_checkpoints(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.several_nodes is not None and not request.checkpoints:
        yield Problem(
            field="checkpoints",
            found="false",
            problem="is given with several nodes, which go on from the checkpoints in S3 when one is lost",
            fix="Let the script save checkpoints (checkpoints: true), or remove nodes.",
        )


@rule("backend", "nodes", "volume")
def _nodes_have_root_disks_alone(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.several_nodes is None or request.volume is None:
        return
    for name, info in type(request.volume).model_fields.items():
        value = getattr(request.volume, name)
        if name != "size_gb" and value != info.default:
            yield Problem(
                field=f"volume.{name}",
                found=shown(value) if name in _VOLUME_FIXES else str(value),
                problem=f"is given with several nodes: {_BEGINS_EMPTY}" if name in _VOLUME_FIXES else _NODE_DISK,
                fix=_VOLUME_FIXES.get(name, "Remove it."),
            )


@rule("backend", "nodes")
def _nodes_reach_each_other(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.several_nodes is None or defaults.fleet_instance_types is None or defaults.nodes_network is not False:
        return
    yield Problem(
        field="nodes",
        found=str(request.several_nodes),
        problem="need a security group in which they reach each other, and this deployment is older than it",
        fix="Deploy again (cdk deploy --all), or remove nodes.",
    )


@rule("backend", "nodes", "nodes_wait", "network")
def _several_nodes_are_asked_for(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.backend != "ec2" or request.several_nodes is not None:
        return
    wait, network = request.nodes_wait, request.network
    given = {
        "nodes_wait": (None if wait is None else format_duration(wait), "waits for no other"),
        "network": (None if network is None else outlined(network), "has no network to others"),
    }
    for field, (found, reason) in given.items():
        if found is not None:
            yield Problem(
                field=field,
                found=found,
                problem=f"is given without several nodes, and one instance {reason}",
                fix=f"Write nodes: 2 or more, or remove {field}.",
            )


@rule("backend", "nodes", "channels", "checkpoint_channel")
def _checkpoints_can_be_shared(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    name = request.checkpoint_channel
    if name is None:
        return
    mounted = {channel.name: channel.access for channel in request.file_system_channels}
    if request.several_nodes is None:
        problem = "is given without several nodes on EC2, and one machine has a disk for its checkpoints"
        fix = "Write backend: ec2 and nodes: 2 or more, or remove checkpoint_channel."
    elif name not in mounted:
        in_s3 = name in {channel.name for channel in request.s3_channels}
        form = f"channels: {{{name if in_s3 else 'shared'}: {{fsx: ..., path: ..., access: rw}}}}"
        problem = "names a channel in S3, not on a file system" if in_s3 else "names no channel on a file system"
        fix = f"Add one, such as {form}, and name it."
        if mounted:
            fix = f"Name one of {', '.join(mounted)}."
        elif in_s3:
            fix = f"Write {form}, or remove checkpoint_channel: S3 has the checkpoints then."
    elif mounted[name] != "rw":
        problem = "names a channel that the job only reads"
        fix = f"Write access: rw in channels.{name}."
    else:
        return
    yield Problem(field="checkpoint_channel", found=shown(name), problem=problem, fix=fix)


def _only_on_ec2(field: str, *, fix: str, as_found: Callable[[Any], str] = outlined) -> Rule:
    return excluded(
        field,
        # What goes with nodes is wrong by them, and one problem names them.
        where=lambda request: request.backend == "sagemaker" and (field == "nodes" or request.nodes is None),
        reads=("backend", "nodes"),
        problem="is not taken with backend: sagemaker",
        fix=fix,
        as_found=as_found,
    )


RULES: Final[tuple[Rule, ...]] = (
    _only_on_ec2(
        "nodes", fix="Write instance_count: for several hosts on SageMaker, or add backend: ec2.", as_found=str
    ),
    _only_on_ec2("nodes_wait", fix="Remove it, or add backend: ec2 and nodes.", as_found=format_duration),
    _only_on_ec2("network", fix="Remove it, or add backend: ec2 and nodes."),
    _range_has_an_order,
    _nodes_can_train_together,
    _nodes_have_checkpoints,
    _nodes_have_root_disks_alone,
    _nodes_reach_each_other,
    _several_nodes_are_asked_for,
    _checkpoints_can_be_shared,
)
