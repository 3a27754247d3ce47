"""The choice of the jobs of a service environment that are dispatched or give way now. It is a pure decision.

Queues have their turns by priority. Within a queue:

| queue | the next job | without room for it |
|---|---|---|
| first in, first out | the oldest | all behind it wait |
| quota shares | of each share the highest priority, then the oldest | the share's other jobs wait |

A queue with quota shares goes through four steps. First each share uses its own capacity. Then idle capacity is lent.
Then lent capacity that a job of its owner needs is taken back from borrowers. Last, jobs give way to those of higher
priority in their share. Capacity that is being taken back is lent to no other share meanwhile.

AWS does not say by which rule it chooses among the jobs that could give way ("a custom heuristic"). Here it is the one
with the lowest priority, and among these the youngest, which loses least.

Sources: "Quota management", "Preemption", "Jobs stuck in RUNNABLE due to misconfiguration" in the AWS Batch user guide.
CapacityLimit and QuotaShareResourceSharingConfiguration in its API reference.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spotkeep_local.batch.records import NUM_INSTANCES, SharingStrategy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from spotkeep_local.batch.records import LocalServiceJob, QuotaShare

ENVIRONMENT_TOO_SMALL: Final = (
    "MISCONFIGURATION:SERVICE_ENVIRONMENT_MAX_RESOURCE - Service environment(s) associated with the job queue cannot "
    "meet the capacity requirement of the job."
)
SHARE_TOO_SMALL: Final = (
    "MISCONFIGURATION:QUOTA_MANAGEMENT_LIMIT_EXCEEDED - The quota share cannot meet the capacity requirement of the "
    "job."
)


@dataclass(frozen=True, kw_only=True)
class SchedulerQueue:
    """A job queue. It is first in, first out, unless it has quota shares.

    Attributes:
        waiting: The jobs that wait to be dispatched.
        placed: The jobs that hold capacity.
    """

    priority: int
    waiting: tuple[LocalServiceJob, ...] = ()
    placed: tuple[LocalServiceJob, ...] = ()
    shares: tuple[QuotaShare, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class SchedulerEnvironment:
    """An enabled service environment and its queues. `limits` are instances by unit."""

    limits: Mapping[str, int]
    queues: tuple[SchedulerQueue, ...]


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """The preemption of one job for another.

    Attributes:
        within_share: True where both are in one share. Otherwise lent capacity is taken back.
        beneficiary: The job that it makes room for.
    """

    job_id: str
    within_share: bool
    beneficiary: str


@dataclass(frozen=True, kw_only=True)
class SchedulingDecision:
    """What happens now.

    Attributes:
        dispatched: The jobs that are dispatched, in this order.
        preempted: The jobs that are stopped to make room.
        blocked: The jobs in front that will never fit as things are, and why.
    """

    dispatched: tuple[str, ...] = ()
    preempted: tuple[Preemption, ...] = ()
    blocked: Mapping[str, str] = field(default_factory=dict)


def decide(environment: SchedulerEnvironment) -> SchedulingDecision:
    """Decide for all queues of a service environment."""
    scheduler = _Scheduler(environment)
    for queue in sorted(environment.queues, key=lambda queue: -queue.priority):
        if queue.shares is not None:
            _QuotaScheduler(scheduler, queue, queue.shares).run()
        else:
            for job in sorted(queue.waiting, key=lambda job: job.number):
                if not scheduler.try_to_place(job):
                    break
    return SchedulingDecision(
        dispatched=tuple(scheduler.dispatched), preempted=tuple(scheduler.preempted), blocked=scheduler.blocked
    )


def units(needs: Mapping[str, int], limits: Iterable[str]) -> dict[str, int]:
    """Return a job's needs in the units of limits. With a common limit, instances of all types count together."""
    return {NUM_INSTANCES: sum(needs.values())} if NUM_INSTANCES in limits else dict(needs)


class _Scheduler:
    """Counts the used capacity during a decision."""

    def __init__(self, environment: SchedulerEnvironment) -> None:
        self.limits = environment.limits
        self.dispatched: list[str] = []
        self.preempted: list[Preemption] = []
        self.blocked: dict[str, str] = {}
        self.used: Counter[str] = Counter()
        for queue in environment.queues:
            for job in queue.placed:
                self.used.update(self.units(job.needs))

    def units(self, needs: Mapping[str, int]) -> dict[str, int]:
        return units(needs, self.limits)

    def free(self, unit: str) -> int:
        return self.limits.get(unit, 0) - self.used[unit]

    def has_room(self, needed: Mapping[str, int], *, kept: Mapping[str, int] | None = None) -> bool:
        return all(number <= self.free(unit) - (kept or {}).get(unit, 0) for unit, number in needed.items())

    def place(self, job: LocalServiceJob) -> None:
        self.used.update(self.units(job.needs))
        self.dispatched.append(job.job_id)

    def try_to_place(self, job: LocalServiceJob) -> bool:
        needed = self.units(job.needs)
        if self.has_room(needed):
            self.place(job)
            return True
        if self.exceeds_limits(needed):
            self.blocked[job.job_id] = ENVIRONMENT_TOO_SMALL
        return False

    def exceeds_limits(self, needed: Mapping[str, int]) -> bool:
        return any(number > self.limits.get(unit, 0) for unit, number in needed.items())


def _order_within_share(job: LocalServiceJob) -> tuple[int, int]:
    return (-job.priority, job.number)


def _by_share(jobs: Iterable[LocalServiceJob]) -> dict[str, list[LocalServiceJob]]:
    """Return the jobs of each share, in their order."""
    found: dict[str, list[LocalServiceJob]] = {}
    for job in sorted(jobs, key=_order_within_share):
        found.setdefault(job.share or "", []).append(job)
    return found


class _QuotaScheduler:
    """Schedules one queue with quota shares."""

    def __init__(self, scheduler: _Scheduler, queue: SchedulerQueue, shares: tuple[QuotaShare, ...]) -> None:
        self._scheduler = scheduler
        self._shares = {share.name: share for share in shares}
        self._waiting = {name: jobs for name, jobs in _by_share(queue.waiting).items() if name in self._shares}
        self._placed = [job for job in queue.placed if job.share in self._shares]
        self._used = {name: Counter[str]() for name in self._shares}
        for job in self._placed:
            self._used[job.share or ""].update(job.needs)
        self._expected: Counter[str] = Counter()
        self._chosen: set[str] = set()

    def run(self) -> None:
        self._place_where(self._fits_its_own)
        self._place_where(self._fits_with_borrowing)
        # What is free and what comes free, less what a job in front waits for.
        self._expected.update({unit: self._scheduler.free(unit) for unit in self._scheduler.limits})
        for placed in self._placed:
            if placed.leaves:
                self._expected.update(placed.needs)
        for job in self._first_jobs():
            self._make_room(job)
            self._say_when_blocked(job)

    def _first_jobs(self) -> list[LocalServiceJob]:
        """Return the first job of each share. Jobs for which others gave way come first, then the oldest."""
        return sorted(
            (jobs[0] for jobs in self._waiting.values() if jobs), key=lambda job: (not job.promised, job.number)
        )

    def _place_where(self, fits: Callable[[LocalServiceJob], bool]) -> None:
        placed = True
        while placed:
            placed = False
            for job in self._first_jobs():
                if fits(job):
                    self._scheduler.place(job)
                    self._used[job.share or ""].update(job.needs)
                    self._waiting[job.share or ""].pop(0)
                    placed = True
                    break

    def _within_its_own(self, job: LocalServiceJob) -> bool:
        share = self._shares[job.share or ""]
        used = self._used[share.name]
        return all(used[unit] + number <= share.limits.get(unit, 0) for unit, number in job.needs.items())

    def _fits_its_own(self, job: LocalServiceJob) -> bool:
        return self._within_its_own(job) and self._scheduler.has_room(job.needs)

    def _fits_with_borrowing(self, job: LocalServiceJob) -> bool:
        share = self._shares[job.share or ""]
        used = self._used[share.name]
        return (
            share.strategy is SharingStrategy.LEND_AND_BORROW
            and not self._within_its_own(job)
            and all(used[unit] + number <= share.most(unit) for unit, number in job.needs.items())
            and self._scheduler.has_room(job.needs, kept=self._not_lent_to(share.name))
        )

    def _not_lent_to(self, borrower: str) -> Counter[str]:
        """Return the idle capacity that other shares do not lend, because they reserve or need it."""
        kept: Counter[str] = Counter()
        for name, share in self._shares.items():
            jobs = self._waiting.get(name) or []
            needs_its_own = any(self._within_its_own(job) for job in jobs[:1])
            if name != borrower and (share.strategy is SharingStrategy.RESERVE or needs_its_own):
                idle = {unit: max(0, limit - self._used[name][unit]) for unit, limit in share.limits.items()}
                kept.update(idle)
        return kept

    def _make_room(self, job: LocalServiceJob) -> None:
        """Let others give way to the first job of a share, if that makes room for it."""
        within = not self._staying_within(job, self._staying(job.share or ""))
        if within and not self._shares[job.share or ""].preempts_within:
            return
        victims = self._giving_way_within(job) if within else self._giving_back(job)
        if victims is None:
            return
        for victim in victims:
            self._chosen.add(victim.job_id)
            self._expected.update(victim.needs)
            self._scheduler.preempted.append(
                Preemption(job_id=victim.job_id, within_share=within, beneficiary=job.job_id)
            )
        self._expected.subtract(job.needs)

    def _staying(self, share: str, *, without: Iterable[LocalServiceJob] = ()) -> Counter[str]:
        """Return the capacity of a share's jobs that do not leave, less further ones."""
        left_out = self._chosen | {job.job_id for job in without}
        held = Counter(self._used[share])
        for job in self._placed:
            if job.share == share and (job.leaves or job.job_id in left_out):
                held.subtract(job.needs)
        return held

    def _staying_within(
        self, job: LocalServiceJob, staying: Mapping[str, int], most: Mapping[str, int] | None = None
    ) -> bool:
        limits = self._shares[job.share or ""].limits if most is None else most
        return all(staying[unit] + number <= limits.get(unit, 0) for unit, number in job.needs.items())

    def _has_room_after(self, job: LocalServiceJob, victims: Iterable[LocalServiceJob]) -> bool:
        freed = Counter(self._expected)
        for victim in victims:
            freed.update(victim.needs)
        return all(number <= freed[unit] for unit, number in job.needs.items())

    def _giving_back(self, job: LocalServiceJob) -> list[LocalServiceJob] | None:
        """Return jobs of other shares, each beyond its limits, that make room together. None if none do."""

        def may_go(candidate: LocalServiceJob, victims: list[LocalServiceJob]) -> bool:
            name = candidate.share or ""
            staying, limits = self._staying(name, without=victims), self._shares[name].limits
            # Never of its own share, which is within these limits.
            return any(unit in job.needs and staying[unit] > limits.get(unit, 0) for unit in candidate.needs)

        return self._fewest(may_go, lambda victims: self._has_room_after(job, victims))

    def _giving_way_within(self, job: LocalServiceJob) -> list[LocalServiceJob] | None:
        """Return jobs of the same share and a lower priority that make room together. None if none do."""
        name = job.share or ""
        limits, held = self._shares[name].limits, self._staying(name)
        # A share that borrows may go on with as much as it has.
        most = {unit: max(limits.get(unit, 0), held[unit]) for unit in job.needs}

        def may_go(candidate: LocalServiceJob, _victims: list[LocalServiceJob]) -> bool:
            useful = any(unit in job.needs for unit in candidate.needs)
            return candidate.share == name and candidate.priority < job.priority and useful

        def makes_room(victims: list[LocalServiceJob]) -> bool:
            staying = self._staying(name, without=victims)
            return self._staying_within(job, staying, most) and self._has_room_after(job, victims)

        return self._fewest(may_go, makes_room)

    def _fewest(
        self,
        may_go: Callable[[LocalServiceJob, list[LocalServiceJob]], bool],
        makes_room: Callable[[list[LocalServiceJob]], bool],
    ) -> list[LocalServiceJob] | None:
        """Return jobs that make room together, none of them in vain. None without such a set."""
        staying = [job for job in self._placed if not job.leaves and job.job_id not in self._chosen]
        victims: list[LocalServiceJob] = []
        for candidate in sorted(staying, key=lambda job: (job.priority, -(job.scheduled_at or 0.0))):
            if makes_room(victims):
                break
            if may_go(candidate, victims):
                victims.append(candidate)
        if not makes_room(victims):
            return None
        for victim in tuple(victims):
            without = [each for each in victims if each is not victim]
            if makes_room(without):
                victims = without
        return victims

    def _say_when_blocked(self, job: LocalServiceJob) -> None:
        share = self._shares[job.share or ""]
        if self._scheduler.exceeds_limits(job.needs):
            self._scheduler.blocked[job.job_id] = ENVIRONMENT_TOO_SMALL
        elif any(number > self._reach(share, unit) for unit, number in job.needs.items()):
            self._scheduler.blocked[job.job_id] = SHARE_TOO_SMALL

    def _reach(self, share: QuotaShare, unit: str) -> float:
        """Return the most of a unit that a share may ever have, its own and the part that others do not reserve."""
        reserved = sum(
            other.limits.get(unit, 0)
            for other in self._shares.values()
            if other.name != share.name and other.strategy is SharingStrategy.RESERVE
        )
        lent = self._scheduler.limits.get(unit, 0) - reserved
        return max(share.limits.get(unit, 0), min(share.most(unit), lent))
