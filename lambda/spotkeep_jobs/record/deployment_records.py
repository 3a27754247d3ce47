"""The records of the deployment itself. Pure.

They are AWS's prices, the places of cut passes, CloudFormation's request to delete it, and the findings of a pass over
orphans with the controller's rule for each kind of them.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from spotkeep_jobs.record.fields import Address, AtMost, Command, Id, Label, Line, Sentence
from spotkeep_jobs.record.record import Record, UtcTime


class StoragePrices(Record):
    """US dollars per gigabyte and month, unless a field says otherwise. None where a price is not known."""

    s3_standard: float | None = None
    """The first tier, which is the dearest."""
    ebs_gp3: float | None = None
    """US dollars per GB-month of a gp3 volume, without provisioned IOPS and throughput."""
    ebs_gp3_iops: float | None = None
    """Per provisioned IOPS of a gp3 volume and month, beyond those that are included."""
    ebs_gp3_throughput: float | None = None
    """US dollars per provisioned GiB/s of a gp3 volume and month, beyond the included throughput."""
    ebs_snapshot: float | None = None
    """A snapshot in the standard tier."""


class PriceBook(Record):
    """The prices of one region, from AWS's price list.

    A price that is not in the book is None. Every bill and table then states that the price is not known.
    """

    region: Id
    fetched_at: UtcTime
    instance_usd_per_hour: Annotated[dict[Id, float], AtMost(4_000)] = Field(default_factory=dict)
    """US dollars per hour of one instance on demand, by type, such as `ml.m5.xlarge` at training or `m5.xlarge` on EC2
    with Linux.
    """
    storage: StoragePrices = StoragePrices()


class PassPlaces(Record):
    """The places at which passes over everything stopped for want of time."""

    begun: Annotated[dict[Id, Line], AtMost(10)] = Field(default_factory=dict)
    """The last item that the last pass began, by kind. The next pass begins after it.

    A kind is absent when all its items had their turn.
    """


class StackRequest(Record):
    """One request, as far as it is used. The names are CloudFormation's, in our spelling.

    Source: "Custom resource request types", CloudFormation user guide.
    """

    kind: Literal["Create", "Update", "Delete"]
    request_id: Label
    stack_id: Address
    logical_resource_id: Label
    physical_resource_id: Address
    """The id of the resource, the same for its whole life.

    With another id CloudFormation would delete the resource of the id before.
    """
    response_url: Annotated[str, AtMost(8_192, ascii=True)]
    """The address for the answer, once."""
    asked_at: UtcTime
    answered_at: UtcTime | None = None
    """The time of the answer that nothing runs any more. None while something may."""


class OrphanKind(StrEnum):
    """The kind of a finding."""

    UNRECORDED_JOB = "unrecorded-job"
    """A training job with the deployment's tag runs, and no run knows it."""
    OUTLIVING_JOB = "outliving-job"
    """A training job runs although its run has ended, or works with another job by now."""
    UNRECORDED_POOL = "unrecorded-pool"
    """Instances wait for a next job, and no run knows them."""
    IDLE_POOL = "idle-pool"
    """The warm pool of an ended run waits. It is known and bounded, and billed."""
    ORPHANED_CHECKPOINTS = "orphaned-checkpoints"
    """Objects of a run that is in the table no more, and that no other run uses."""
    UNUSED_FLEET = "unused-fleet"
    """A fleet may launch instances, and no live run has it."""
    UNUSED_STORAGE = "unused-storage"
    """A volume or a snapshot of a run that needs it no more."""


class OrphanRule(StrEnum):
    """The controller's answer to a kind of finding."""

    REPORT = "report"
    """Nothing: a person decides."""
    REMOVE = "remove"
    """It removes it, once it has been so for the kind's grace."""
    RECONCILE = "reconcile"
    """Its next pass over the runs, within five minutes, deletes it from EC2."""


RULES: Final = {
    OrphanKind.UNRECORDED_JOB: OrphanRule.REMOVE,
    OrphanKind.OUTLIVING_JOB: OrphanRule.REMOVE,
    OrphanKind.UNRECORDED_POOL: OrphanRule.REMOVE,
    OrphanKind.IDLE_POOL: OrphanRule.REPORT,
    OrphanKind.ORPHANED_CHECKPOINTS: OrphanRule.REPORT,
    OrphanKind.UNUSED_FLEET: OrphanRule.RECONCILE,
    OrphanKind.UNUSED_STORAGE: OrphanRule.RECONCILE,
}
"""The rule of each kind, unless a finding has its own reason not to be removed."""

GRACE: Final = {
    OrphanKind.UNRECORDED_JOB: timedelta(hours=1),
    OrphanKind.OUTLIVING_JOB: timedelta(minutes=15),
    OrphanKind.UNRECORDED_POOL: timedelta(minutes=15),
    OrphanKind.IDLE_POOL: timedelta(0),
    OrphanKind.ORPHANED_CHECKPOINTS: timedelta(days=1),
    OrphanKind.UNUSED_FLEET: timedelta(minutes=15),
    OrphanKind.UNUSED_STORAGE: timedelta(minutes=15),
}
"""The time that a condition must last before it is a finding (before removal, for a job that is not recorded).

It is the time of three passes over the runs. In that time the ordinary work puts most things right by itself."""


class Finding(Record):
    """One thing that should not be, or costs money unnoticed."""

    kind: OrphanKind
    rule: OrphanRule
    subject: Command
    """The thing that it is about, such as a training job, a run, an S3 prefix, a fleet, a volume or a snapshot."""
    since: UtcTime
    """Since when it has been so, as far as it is known."""
    says: Sentence
    """The finding, in a sentence without a full stop."""
    risk: Sentence
    """The consequence, in a few words."""
    usd_per_hour: float | None = None
    """Its cost in US dollars per hour. None where AWS bills nothing, or the price is not known."""
    mend: Command
    """The command that puts it right."""
    due: bool = False
    """True when the condition has lasted long enough for its rule to be applied."""

    @property
    def wrong(self) -> bool:
        """True for a condition that should not be. A pool that waits as it was asked to only costs money."""
        return self.kind is not OrphanKind.IDLE_POOL


class OrphanOutcome(StrEnum):
    """The outcome of a finding."""

    REPORTED = "reported"
    REMOVED = "removed"
    WOULD_REMOVE = "would-remove"
    """It would have been removed. The deployment's setting says to report only."""
    FAILED = "failed"


class Handled(Record):
    """A finding and its outcome."""

    finding: Finding
    outcome: OrphanOutcome
    problem: Sentence | None = None
    """The reason why it could not be removed."""


class OrphanReport(Record):
    """The findings and outcomes of one pass over orphans. The run table keeps the last report."""

    begun_at: UtcTime
    removes: bool
    """True when the pass was to remove anything at all."""
    handled: Annotated[tuple[Handled, ...], AtMost(100)] = ()
    left_out: int = 0
    """The number of findings beyond the kept ones."""
    unreadable: Annotated[dict[Command, Sentence], AtMost(30)] = Field(default_factory=dict)
    """The kinds of things, or single things, that could not be read, each with the reason."""
    looked_to: Annotated[dict[Id, Command], AtMost(len(OrphanKind))] = Field(default_factory=dict)
    """The last item that a pass examined, by kind, for kinds with too many items for one pass.

    The next pass goes on from there.
    """

    @property
    def wrong_usd_per_hour(self) -> float:
        """The cost of all findings that should not be, in US dollars per hour, as far as prices are known."""
        return sum(each.finding.usd_per_hour or 0.0 for each in self.handled if each.finding.wrong)

    def count(self, outcome: OrphanOutcome) -> int:
        """Return how many findings came to this."""
        return sum(each.outcome is outcome for each in self.handled)
