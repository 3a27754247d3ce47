"""Which jobs are dispatched and which give way: examples, and the rules that hold for all of them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.batch.records import (
    NUM_INSTANCES,
    UNLIMITED,
    LocalServiceJob,
    QuotaShare,
    SharingStrategy,
    StopCause,
)
from spotkeep_local.batch.scheduling import (
    ENVIRONMENT_TOO_SMALL,
    SHARE_TOO_SMALL,
    Preemption,
    SchedulerEnvironment,
    SchedulerQueue,
    SchedulingDecision,
    decide,
    units,
)

TYPE, OTHER = "ml.m5.large", "ml.g5.xlarge"
RESERVE, LEND, BORROW = SharingStrategy.RESERVE, SharingStrategy.LEND, SharingStrategy.LEND_AND_BORROW


def waiting(number: int, instances: int = 1, *, share: str | None = None, **values: Any) -> LocalServiceJob:
    return LocalServiceJob(
        **{
            "job_id": f"w{number}",
            "arn": "arn",
            "name": "name",
            "queue": "queue",
            "number": number,
            "request": {} if share is None else {"quotaShareName": share},
            "needs": {TYPE: instances},
            "created_at": 0.0,
            "client_token": "token",
        }
        | values
    )


def placed(number: int, instances: int = 1, *, leaves: bool = False, **values: Any) -> LocalServiceJob:
    job = dispatched(waiting(number, instances, job_id=f"p{number}", **values), at=float(number))
    return preempted(job) if leaves else job


def dispatched(job: LocalServiceJob, *, at: float) -> LocalServiceJob:
    return dataclasses.replace(job, training_job="training", scheduled_at=at)


def preempted(job: LocalServiceJob) -> LocalServiceJob:
    return dataclasses.replace(job, stop_cause=StopCause.PREEMPTION)


def share(name: str, limit: int, strategy: SharingStrategy = BORROW, **values: Any) -> QuotaShare:
    of_share = {"limits": {TYPE: limit}, "borrow_limit": UNLIMITED, "preempts_within": False} | values
    return QuotaShare(name=name, arn=name, queue="queue", enabled=True, strategy=strategy, **of_share)


def of_instances(limit: int, *queues: SchedulerQueue) -> SchedulingDecision:
    return decide(SchedulerEnvironment(limits={NUM_INSTANCES: limit}, queues=queues))


def of_types(limit: int, queue: SchedulerQueue) -> SchedulingDecision:
    return decide(SchedulerEnvironment(limits={TYPE: limit}, queues=(queue,)))


# First in, first out.


def test_the_oldest_goes_first_whatever_its_priority():
    queue = SchedulerQueue(priority=1, waiting=(waiting(2, priority=9), waiting(1), waiting(3)))
    assert of_instances(2, queue).dispatched == ("w1", "w2")


def test_a_job_that_does_not_fit_holds_up_all_behind_it():
    queue = SchedulerQueue(priority=1, waiting=(waiting(1, 3), waiting(2, 1)), placed=(placed(1, 2),))
    assert of_instances(4, queue) == SchedulingDecision()


def test_a_job_that_can_never_fit_says_so():
    queue = SchedulerQueue(priority=1, waiting=(waiting(1, 5), waiting(2, 1)))
    decision = of_instances(4, queue)
    assert decision.dispatched == ()
    assert decision.blocked == {"w1": ENVIRONMENT_TOO_SMALL}


def test_instances_of_all_types_count_together():
    both = waiting(1, needs={TYPE: 1, OTHER: 2})
    assert of_instances(2, SchedulerQueue(priority=1, waiting=(both,))).dispatched == ()
    assert of_instances(3, SchedulerQueue(priority=1, waiting=(both,))).dispatched == ("w1",)


def test_a_queue_of_higher_priority_goes_first_and_does_not_hold_up_the_others():
    high = SchedulerQueue(priority=10, waiting=(waiting(5, 1), waiting(6, 3)))
    low = SchedulerQueue(priority=1, waiting=(waiting(1, 1),))
    assert of_instances(3, low, high).dispatched == ("w5", "w1")


# Quota shares.


def test_a_share_uses_its_own_and_borrows_what_is_idle():
    jobs = tuple(waiting(number, share="a") for number in range(1, 5))
    shares = (share("a", 2), share("b", 1, LEND), share("c", 1, RESERVE))
    assert of_types(4, SchedulerQueue(priority=1, waiting=jobs, shares=shares)).dispatched == ("w1", "w2", "w3")


def test_a_share_that_only_lends_stays_within_its_limit():
    jobs = tuple(waiting(number, share="a") for number in range(1, 5))
    shares = (share("a", 2, LEND), share("b", 2, LEND))
    decision = of_types(4, SchedulerQueue(priority=1, waiting=jobs, shares=shares))
    assert decision.dispatched == ("w1", "w2")


def test_a_borrow_limit_is_a_percentage_of_the_shares_own():
    jobs = tuple(waiting(number, share="a") for number in range(1, 9))
    shares = (share("a", 2, borrow_limit=50), share("b", 6, LEND))
    assert of_types(8, SchedulerQueue(priority=1, waiting=jobs, shares=shares)).dispatched == ("w1", "w2", "w3")


def test_idle_capacity_goes_to_the_oldest_job_that_borrows():
    jobs = (waiting(2, share="a"), waiting(1, share="b"))
    shares = (share("a", 0), share("b", 0), share("c", 1, LEND))
    assert of_types(1, SchedulerQueue(priority=1, waiting=jobs, shares=shares)).dispatched == ("w1",)


def test_lent_capacity_is_taken_back_from_the_lowest_priority_and_the_youngest():
    queue = SchedulerQueue(
        priority=1,
        waiting=(waiting(1, share="b"),),
        placed=(placed(1, share="a", priority=1), placed(2, share="a"), placed(3, share="a")),
        shares=(share("a", 2), share("b", 1, LEND)),
    )
    assert of_types(3, queue).preempted == (Preemption(job_id="p3", within_share=False, beneficiary="w1"),)


def test_each_lender_gets_its_own_back():
    queue = SchedulerQueue(
        priority=1,
        waiting=(waiting(1, share="b"), waiting(2, share="c")),
        placed=(placed(1, share="a"), placed(2, share="a")),
        shares=(share("a", 0), share("b", 1, LEND), share("c", 1, LEND)),
    )
    assert {each.job_id: each.beneficiary for each in of_types(2, queue).preempted} == {"p2": "w1", "p1": "w2"}


def test_who_stays_within_its_limit_gives_nothing_back():
    queue = SchedulerQueue(
        priority=1,
        waiting=(waiting(1, 2, share="b", priority=9),),
        placed=(placed(1, 2, share="a"),),
        shares=(share("a", 2), share("b", 2)),
    )
    assert of_types(3, queue) == SchedulingDecision()


def test_nothing_is_stopped_twice_or_in_vain():
    leaving = placed(1, share="a", leaves=True)
    queue = SchedulerQueue(
        priority=1,
        waiting=(waiting(1, share="b"),),
        placed=(leaving, placed(2, share="a")),
        shares=(share("a", 1), share("b", 1)),
    )
    assert of_types(2, queue) == SchedulingDecision()


def test_no_more_jobs_give_way_than_make_room():
    queue = SchedulerQueue(
        priority=1,
        waiting=(waiting(1, 2, share="b"),),
        placed=(placed(1, 2, share="a"), placed(2, 1, share="a")),
        shares=(share("a", 0), share("b", 2, LEND)),
    )
    assert [each.job_id for each in of_types(3, queue).preempted] == ["p1"]


def test_capacity_that_is_taken_back_is_not_lent_meanwhile():
    queue = SchedulerQueue(
        priority=1,
        waiting=(waiting(1, 2, share="b"), waiting(2, 1, share="c")),
        placed=(placed(1, 1, share="a", leaves=True),),
        shares=(share("a", 0), share("b", 2), share("c", 0)),
    )
    assert of_types(2, queue) == SchedulingDecision(blocked={})


def test_a_lowered_limit_makes_jobs_give_way_even_where_nothing_is_lent():
    queue = SchedulerQueue(
        priority=1,
        waiting=(waiting(1, share="b"),),
        placed=(placed(1, share="a"), placed(2, share="a")),
        shares=(share("a", 1, RESERVE), share("b", 1, RESERVE)),
    )
    assert [each.job_id for each in of_types(2, queue).preempted] == ["p2"]


def test_a_higher_priority_makes_jobs_of_its_share_give_way_where_the_share_says_so():
    def decision(*, preempts_within: bool) -> SchedulingDecision:
        queue = SchedulerQueue(
            priority=1,
            waiting=(waiting(1, share="a", priority=5),),
            placed=(placed(1, share="a", priority=5), placed(2, share="a", priority=1)),
            shares=(share("a", 2, RESERVE, preempts_within=preempts_within),),
        )
        return of_types(2, queue)

    assert decision(preempts_within=False) == SchedulingDecision()
    preempted = (Preemption(job_id="p2", within_share=True, beneficiary="w1"),)
    assert decision(preempts_within=True).preempted == preempted


def test_a_share_that_borrows_exchanges_one_job_for_another():
    queue = SchedulerQueue(
        priority=1,
        waiting=(waiting(1, share="a", priority=5),),
        placed=(placed(1, share="a"), placed(2, share="a")),
        shares=(share("a", 1, preempts_within=True), share("b", 1, LEND)),
    )
    assert [each.job_id for each in of_types(2, queue).preempted] == ["p2"]


def test_who_is_leaving_its_share_makes_room_enough():
    queue = SchedulerQueue(
        priority=1,
        waiting=(waiting(1, share="a", priority=5),),
        placed=(placed(1, share="a", leaves=True), placed(2, share="a")),
        shares=(share("a", 2, RESERVE, preempts_within=True),),
    )
    assert of_types(2, queue) == SchedulingDecision()


def test_a_job_for_which_others_gave_way_comes_before_older_ones_that_borrow():
    jobs = (waiting(1, share="a"), waiting(2, share="b", promised=True))
    shares = (share("a", 0), share("b", 0), share("c", 1, LEND))
    assert of_types(1, SchedulerQueue(priority=1, waiting=jobs, shares=shares)).dispatched == ("w2",)


def test_a_job_beyond_its_shares_most_says_so():
    shares = (share("a", 1, LEND), share("b", 3, LEND))
    queue = SchedulerQueue(priority=1, waiting=(waiting(1, 2, share="a"), waiting(2, 9, share="b")), shares=shares)
    assert of_types(4, queue).blocked == {"w1": SHARE_TOO_SMALL, "w2": ENVIRONMENT_TOO_SMALL}


def test_a_job_that_needs_what_others_reserve_can_never_have_it():
    shares = (share("a", 1), share("b", 2, RESERVE))
    fits, never = waiting(1, 2, share="a"), waiting(1, 3, share="a")
    for job, blocked in ((fits, {}), (never, {"w1": SHARE_TOO_SMALL})):
        placed_now = SchedulerQueue(priority=1, waiting=(job,), placed=(placed(7, 1, share="a"),), shares=shares)
        assert of_types(4, placed_now).blocked == blocked


def test_a_type_without_a_limit_waits():
    queue = SchedulerQueue(priority=1, waiting=(waiting(1, needs={OTHER: 1}, share="a"),), shares=(share("a", 4),))
    decision = of_types(4, queue)
    assert decision.dispatched == ()
    assert decision.blocked == {"w1": ENVIRONMENT_TOO_SMALL}


# Rules, of everything that can be.

TYPES = (TYPE, OTHER)
needs = st.dictionaries(st.sampled_from(TYPES), st.integers(1, 3), min_size=1)
limits = st.fixed_dictionaries({TYPE: st.integers(0, 6), OTHER: st.integers(0, 6)})


@st.composite
def quota_queues(draw: st.DrawFn) -> SchedulerQueue:
    """A queue with up to four shares, whose placed jobs came there by decisions: nothing is above a limit."""
    names = ["a", "b", "c", "d"][: draw(st.integers(1, 4))]
    shares = tuple(
        share(
            name,
            0,
            draw(st.sampled_from(SharingStrategy)),
            limits=draw(limits),
            borrow_limit=draw(st.sampled_from([-1, 0, 50, 100, 200])),
            preempts_within=draw(st.booleans()),
        )
        for name in names
    )
    numbers = range(1, 1 + draw(st.integers(1, 10)))
    jobs = tuple(
        waiting(
            number,
            needs=draw(needs),
            priority=draw(st.integers(0, 3)),
            share=draw(st.sampled_from(names)),
        )
        for number in numbers
    )
    return SchedulerQueue(priority=1, waiting=jobs, shares=shares)


def step(environment: SchedulerEnvironment, *, time: float) -> tuple[SchedulerEnvironment, SchedulingDecision]:
    """Decide, and let what was decided happen: those who give way are leaving."""
    (queue,) = environment.queues
    decision = decide(environment)
    by_id = {job.job_id: job for job in queue.waiting}
    leaving = {each.job_id for each in decision.preempted}
    promised = {each.beneficiary for each in decision.preempted}
    new = tuple(dispatched(by_id[job_id], at=time) for job_id in decision.dispatched)
    stay = tuple(preempted(job) if job.job_id in leaving else job for job in queue.placed)
    still = tuple(
        dataclasses.replace(job, promised=job.promised or job.job_id in promised)
        for job in queue.waiting
        if job.job_id not in decision.dispatched
    )
    return _with(environment, dataclasses.replace(queue, waiting=still, placed=(*stay, *new))), decision


def let_leave(environment: SchedulerEnvironment) -> SchedulerEnvironment:
    """Let those who give way be gone; they wait again, as old as before."""
    (queue,) = environment.queues
    back = tuple(
        dataclasses.replace(job, training_job=None, scheduled_at=None, stop_cause=None, promised=False)
        for job in queue.placed
        if job.leaves
    )
    stay = tuple(job for job in queue.placed if not job.leaves)
    return _with(environment, dataclasses.replace(queue, waiting=(*queue.waiting, *back), placed=stay))


def _with(environment: SchedulerEnvironment, queue: SchedulerQueue) -> SchedulerEnvironment:
    return dataclasses.replace(environment, queues=(queue,))


def in_use(environment: SchedulerEnvironment, share_name: str | None = None) -> Counter[str]:
    """What is used, or used by one share."""
    (queue,) = environment.queues
    used: Counter[str] = Counter()
    for job in queue.placed:
        if share_name in (None, job.share):
            used.update(units(job.needs, environment.limits))
    return used


@st.composite
def histories(draw: st.DrawFn) -> SchedulerEnvironment:
    """An environment after some of its jobs came one after the other, and some went."""
    environment = SchedulerEnvironment(limits=draw(limits), queues=(draw(quota_queues()),))
    (queue,) = environment.queues
    arrived: list[LocalServiceJob] = []
    for job in queue.waiting:
        arrived.append(job)
        if draw(st.booleans()):
            (now,) = environment.queues
            come = tuple(arrived) if not arrived or now is queue else (*now.waiting, *arrived)
            environment, _decision = step(
                _with(environment, dataclasses.replace(now, waiting=come)), time=float(job.number)
            )
            arrived = []
            if draw(st.booleans()):
                environment = let_leave(environment)
    (now,) = environment.queues
    come = tuple(arrived) if now is queue else (*now.waiting, *arrived)
    return _with(environment, dataclasses.replace(now, waiting=come))


@given(histories())
def test_rules_of_every_decision(environment: SchedulerEnvironment):
    after, decision = step(environment, time=100.0)
    no_limit_is_exceeded(environment, after, decision)
    no_lower_priority_goes_before_a_higher_one_of_its_share(environment, decision)
    what_is_reserved_is_not_lent(environment, after)
    lent_capacity_comes_back(after, decision)
    a_job_gives_way_to_a_lender_or_to_a_higher_priority_alone(environment, decision)
    the_waiting_and_leaving_come_to_rest(after)


def no_limit_is_exceeded(
    environment: SchedulerEnvironment, after: SchedulerEnvironment, decision: SchedulingDecision
) -> None:
    assert all(used <= environment.limits[unit] for unit, used in in_use(after).items())
    (queue,) = environment.queues
    dispatched = {job.share for job in queue.waiting if job.job_id in decision.dispatched}
    for each in queue.shares or ():
        if each.name in dispatched:
            assert all(used <= each.most(unit) for unit, used in in_use(after, each.name).items())


def no_lower_priority_goes_before_a_higher_one_of_its_share(
    environment: SchedulerEnvironment, decision: SchedulingDecision
) -> None:
    (queue,) = environment.queues
    for job in queue.waiting:
        if job.job_id in decision.dispatched:
            continue
        for other in queue.waiting:
            behind = other.share == job.share and (-other.priority, other.number) > (-job.priority, job.number)
            assert not (behind and other.job_id in decision.dispatched)


def what_is_reserved_is_not_lent(environment: SchedulerEnvironment, after: SchedulerEnvironment) -> None:
    (queue,) = environment.queues
    total = Counter[str]()
    for each in queue.shares or ():
        total.update(each.limits)
    # With more promised than there is, first come, first served.
    if any(total[unit] > environment.limits[unit] for unit in TYPES):
        return
    for each in queue.shares or ():
        if each.strategy is not RESERVE:
            continue
        used, all_used = in_use(after, each.name), in_use(after)
        for unit in TYPES:
            idle = each.limits[unit] - used[unit]
            assert all_used[unit] + max(0, idle) <= environment.limits[unit]


def lent_capacity_comes_back(after: SchedulerEnvironment, decision: SchedulingDecision) -> None:
    """What a job in front waits for, within its share's own, is there once those who borrow it have left."""
    reclaiming = {each.beneficiary for each in decision.preempted if not each.within_share}
    _, later = step(let_leave(after), time=101.0)
    assert reclaiming <= set(later.dispatched)


def a_job_gives_way_to_a_lender_or_to_a_higher_priority_alone(
    environment: SchedulerEnvironment, decision: SchedulingDecision
) -> None:
    (queue,) = environment.queues
    shares = {each.name: each for each in queue.shares or ()}
    waiting_jobs = {job.job_id: job for job in queue.waiting}
    placed_jobs = {job.job_id: job for job in queue.placed}
    assert len({each.job_id for each in decision.preempted}) == len(decision.preempted)
    for each in decision.preempted:
        victim, beneficiary = placed_jobs[each.job_id], waiting_jobs[each.beneficiary]
        assert not victim.leaves
        if each.within_share:
            assert victim.share == beneficiary.share
            assert victim.priority < beneficiary.priority
            assert shares[victim.share or ""].preempts_within
        else:
            used = in_use(environment, victim.share)
            assert victim.share != beneficiary.share
            assert any(used[unit] > shares[victim.share or ""].limits[unit] for unit in victim.needs)


def the_waiting_and_leaving_come_to_rest(environment: SchedulerEnvironment) -> None:
    """Jobs do not chase each other away for ever."""
    for time in range(60):
        environment = let_leave(environment)
        environment, decision = step(environment, time=101.0 + time)
        if not (decision.dispatched or decision.preempted or any(job.leaves for job in environment.queues[0].placed)):
            return
    raise AssertionError("jobs give way to each other again and again")
