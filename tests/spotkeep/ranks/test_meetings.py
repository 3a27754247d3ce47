"""The questions at which ranks meet, in any order of their questions, rounds and notices.

Safety: all ranks meet at the same questions, and none has passed one. Liveness: a rank that waits goes on, and a notice
leads to a meeting within two rounds, at the next question of the rank that is ahead.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spotkeep.ranks import meetings
from spotkeep.ranks.meetings import NO_WISH, NOTICE_WISH, SAVE_WISH, Answer, Meetings, Next

LONGEST_ROUNDS = 4
"""Two rounds fix a meeting. A round may have begun before, with a wish for a save that takes the next one."""


class Rank:
    """One rank: the thread that trains asks, and the thread beside it takes part in rounds."""

    def __init__(self, questions):
        self.meetings = Meetings()
        self.questions = questions
        self.noticed = False
        self.save_due = False
        self.agreed = False  # a meeting has heard of a notice
        self.entered = []  # the numbers of its questions that were meetings, with what it knew
        self.left = 0  # meetings that are over for it
        self.passed = set()
        self.reported = None
        self.rounds = 0
        self.then = Next.SOON
        self.answer = None

    @property
    def in_meeting(self):
        return self.left < len(self.entered)

    @property
    def is_done(self):
        return self.agreed or (self.meetings.questions.count == len(self.questions) and not self.in_meeting)

    def ask(self):
        number = self.meetings.questions.count
        question, saves, meets = self.questions[number]
        self.answer = self.meetings.ask(question, saves=saves, meets=meets, noticed=self.noticed)
        if self.answer is Answer.PASS:
            self.passed.add(number)
        elif self.answer is Answer.MEET:
            self.entered.append((number, self.meetings.questions.digest, self.noticed))


class Ranks:
    """Some ranks, and the two kinds of collectives between them."""

    def __init__(self, count, questions):
        self.ranks = [Rank(questions) for _ in range(count)]
        self.heard = []  # the largest numbers of each round

    def can_ask(self, rank):
        return not rank.in_meeting and not rank.is_done

    def report(self, rank):
        wish = NO_WISH if rank.agreed else NOTICE_WISH if rank.noticed else SAVE_WISH if rank.save_due else NO_WISH
        rank.reported = rank.meetings.report(wish)
        if all(one.reported is not None and one.rounds == rank.rounds for one in self.ranks):
            self.heard.append([max(numbers) for numbers in zip(*(one.reported for one in self.ranks), strict=True)])

    def can_report(self, rank):
        return rank.reported is None and rank.then is not Next.NEVER

    def can_hear(self, rank):
        return rank.reported is not None and rank.rounds < len(self.heard)

    def hear(self, rank):
        rank.then = rank.meetings.hear(self.heard[rank.rounds])
        rank.rounds += 1
        rank.reported = None

    def can_leave_meeting(self, rank):
        return rank.in_meeting and all(len(one.entered) > rank.left for one in self.ranks)

    def leave_meeting(self, rank):
        met = [one.entered[rank.left] for one in self.ranks]
        assert len({(number, digest) for number, digest, _ in met}) == 1, "all ranks are at the same question"
        rank.agreed = any(noticed for *_, noticed in met)
        if rank.questions[met[0][0]][1]:
            rank.save_due = False
        rank.meetings.end_meeting()
        rank.left += 1

    def round(self):
        """A round of all threads, while no rank asks."""
        for rank in self.ranks:
            if self.can_hear(rank):
                self.hear(rank)
        for rank in self.ranks:
            if self.can_report(rank):
                self.report(rank)
        for rank in self.ranks:
            if self.can_hear(rank):
                self.hear(rank)

    def require_same_meetings(self):
        met = [[number for number, *_ in rank.entered] for rank in self.ranks]
        most = max(met, key=len)
        assert all(one == most[: len(one)] for one in met)
        assert len(most) - min(map(len, met)) <= 1
        assert not any(rank.passed & set(most) for rank in self.ranks), "none has passed a meeting"
        assert not any(rank.meetings.apart or rank.answer is Answer.GONE for rank in self.ranks)

    def end(self):
        """Let all ranks come to their end, or to a notice."""
        while not all(rank.is_done for rank in self.ranks):
            came_further = [self.go_on(rank) for rank in self.ranks]
            if not any(came_further):
                for _ in range(LONGEST_ROUNDS):
                    self.round()
                assert any(self.go_on(rank) for rank in self.ranks), "each rank that waits goes on"
        self.require_same_meetings()
        assert len({rank.agreed for rank in self.ranks}) == 1
        assert len({rank.meetings.questions.count for rank in self.ranks}) == 1

    def go_on(self, rank):
        """Let a rank ask, or leave a meeting, if it can. Gives true if it came further."""
        if self.can_leave_meeting(rank):
            self.leave_meeting(rank)
            return True
        if self.can_ask(rank):
            before = rank.meetings.questions.count
            rank.ask()
            return rank.meetings.questions.count > before
        return False


QUESTIONS = st.lists(st.tuples(st.booleans(), st.sampled_from([False, False, False, True])), min_size=1, max_size=30)


class AnyInterleaving(RuleBasedStateMachine):
    @initialize(count=st.integers(1, 8), kinds=QUESTIONS)
    def begin(self, count, kinds):
        last = len(kinds) - 1
        questions = [(number * 3, saves, meets or number in (0, last)) for number, (saves, meets) in enumerate(kinds)]
        self.all = Ranks(count, questions)

    def one(self, data, can):
        ranks = [rank for rank in self.all.ranks if can(rank)]
        return data.draw(st.sampled_from(ranks)) if ranks else None

    @rule(data=st.data(), times=st.integers(1, 4))
    def asks(self, data, times):
        rank = self.one(data, self.all.can_ask)
        for _ in range(times):
            if rank is not None and self.all.can_ask(rank):
                rank.ask()

    @rule(data=st.data())
    def leaves_meeting(self, data):
        rank = self.one(data, self.all.can_leave_meeting)
        if rank is not None:
            self.all.leave_meeting(rank)

    @rule(data=st.data())
    def reports(self, data):
        rank = self.one(data, self.all.can_report)
        if rank is not None:
            self.all.report(rank)

    @rule(data=st.data())
    def hears(self, data):
        rank = self.one(data, self.all.can_hear)
        if rank is not None:
            self.all.hear(rank)

    @rule()
    def all_threads_run(self):
        self.all.round()

    @rule(data=st.data())
    def notice_comes(self, data):
        data.draw(st.sampled_from(self.all.ranks)).noticed = True

    @rule()
    def save_is_due(self):
        self.all.ranks[0].save_due = True

    @precondition(lambda self: any(rank.noticed and not rank.agreed for rank in self.all.ranks))
    @rule()
    def a_notice_leads_to_a_meeting_at_the_next_question_of_the_rank_ahead(self):
        """While no rank asks, rounds alone fix it."""
        for _ in range(LONGEST_ROUNDS):
            self.all.round()
        ahead = max(self.all.ranks, key=lambda rank: rank.meetings.questions.count)
        if not ahead.is_done and not any(rank.in_meeting for rank in self.all.ranks):
            ahead.ask()
            assert ahead.answer is Answer.MEET

    @invariant()
    def all_meet_at_the_same_questions(self):
        self.all.require_same_meetings()

    def teardown(self):
        if hasattr(self, "all"):
            self.all.end()


AnyInterleaving.TestCase.settings = settings(max_examples=50, stateful_step_count=60, deadline=None)
TestAnyInterleaving = AnyInterleaving.TestCase


def test_any_order_that_chance_draws():
    chance = random.Random(47)  # noqa: S311
    for _ in range(500):
        kinds = [(chance.random() < 0.6, number in (0, 29) or chance.random() < 0.1) for number in range(30)]
        world = ranks_of(chance.randint(1, 8), kinds=kinds)
        noticed_at, due_at = chance.randint(0, 300), [chance.randint(0, 300) for _ in range(3)]
        slow = chance.choice(world.ranks)
        for moment in range(300):
            rank = chance.choice(world.ranks)
            if rank is slow and chance.random() < 0.5:
                continue
            if moment >= noticed_at:
                chance.choice(world.ranks).noticed, noticed_at = True, chance.choice([1000, moment + 9])
            if moment in due_at:
                world.ranks[0].save_due = True
            able = [
                act
                for can, act in (
                    (world.can_ask(rank), Rank.ask),
                    (world.can_leave_meeting(rank), world.leave_meeting),
                    (world.can_report(rank), world.report),
                    (world.can_hear(rank), world.hear),
                )
                if can
            ]
            if able:
                chance.choice(able)(rank)
                world.require_same_meetings()
        world.end()


def ranks_of(count, *, steps=9, kinds=None):
    kinds = kinds or [(True, number in (0, steps - 1)) for number in range(steps)]
    return Ranks(count, [(number * 3, saves, meets) for number, (saves, meets) in enumerate(kinds)])


def meet_first(world):
    for rank in world.ranks:
        rank.ask()
    for rank in world.ranks:
        world.leave_meeting(rank)


def test_questions_between_meetings_need_no_round():
    world = ranks_of(3)
    meet_first(world)
    for rank in world.ranks:
        for _ in range(7):
            rank.ask()
        assert rank.answer is Answer.PASS
    assert world.heard == []


def test_a_notice_in_a_long_step_takes_effect_at_its_end():
    world = ranks_of(8)
    meet_first(world)
    world.ranks[5].noticed = True
    world.round()
    assert [rank.then for rank in world.ranks] == [Next.AT_ONCE] * 8
    world.round()
    for rank in world.ranks:
        rank.ask()
        assert (rank.answer, rank.meetings.questions.count) == (Answer.MEET, 2)
        rank.meetings.end_meeting()


def test_a_rank_with_a_notice_asks_no_further_so_the_others_take_one_step_more_at_most():
    world = ranks_of(2)
    meet_first(world)
    noticed, other = world.ranks
    noticed.noticed = True
    noticed.ask()
    assert noticed.answer is Answer.WAIT
    other.ask()  # and then the next step's collective needs the other rank
    for _ in range(2):
        world.round()
    noticed.ask()
    assert noticed.answer is Answer.PASS
    for rank in world.ranks:
        rank.ask()
        assert (rank.answer, rank.meetings.questions.count) == (Answer.MEET, 3)


def test_a_rank_that_has_given_its_number_asks_nothing_before_it_hears_the_others():
    world = ranks_of(2)
    meet_first(world)
    first, second = world.ranks
    second.noticed = True
    world.round()
    world.report(first)
    first.ask()
    assert first.answer is Answer.WAIT
    world.report(second)
    world.hear(first)
    first.ask()
    assert (first.answer, first.meetings.questions.count) == (Answer.MEET, 2)
    world.hear(second)
    second.ask()
    assert (second.answer, second.meetings.questions.count) == (Answer.MEET, 2)


@pytest.mark.parametrize("wish", ["a notice", "a save"])
def test_a_meeting_that_is_fixed_while_a_rank_is_in_an_earlier_one_comes_on_all_ranks(wish):
    world = ranks_of(2, kinds=[(True, number in (0, 2)) for number in range(5)])
    meet_first(world)
    ahead, behind = world.ranks
    ahead.ask()
    ahead.ask()
    assert ahead.answer is Answer.MEET
    ahead.noticed, ahead.save_due = wish == "a notice", wish == "a save"
    for _ in range(2):
        world.round()
    behind.ask()
    behind.ask()
    assert behind.answer is Answer.MEET
    for rank in world.ranks:
        rank.meetings.end_meeting()
        rank.ask()
        assert (rank.answer, rank.meetings.questions.count) == (Answer.MEET, 4)


def test_a_due_save_holds_nobody_up_and_waits_for_a_question_after_a_step():
    kinds = [(False, True), (True, False), (False, False), (False, False), (True, False), (True, True)]
    world = ranks_of(2, kinds=kinds)
    meet_first(world)
    world.ranks[0].save_due = True
    for rank in world.ranks:
        rank.ask()
        assert rank.answer is Answer.PASS
    for _ in range(2):
        world.round()
    answers = []
    for _ in range(3):
        for rank in world.ranks:
            rank.ask()
        answers.append([rank.answer for rank in world.ranks])
    assert answers == [[Answer.PASS] * 2, [Answer.PASS] * 2, [Answer.MEET] * 2]


def test_ranks_at_different_places_are_found_where_none_of_them_meets():
    questions = [(0, True, True), *((number, True, False) for number in range(1, 9))]
    world = ranks_of(3)
    for rank in world.ranks:
        rank.questions = list(questions)
    world.ranks[1].questions[2] = (99, False, False)
    meet_first(world)
    for rank in world.ranks:
        rank.ask()
        rank.ask()
    world.round()
    assert not any(rank.meetings.apart for rank in world.ranks)
    world.round()
    assert all(rank.meetings.apart and rank.then is Next.NEVER for rank in world.ranks)
    main, *others = world.ranks
    main.ask()
    assert main.answer is Answer.MEET, "a rank that asks meets the others itself"
    assert main.meetings.stand_in() is None
    main.meetings.end_meeting(found_apart=True)
    assert main.meetings.stand_in() is False
    for rank in others:
        assert rank.meetings.stand_in() is True, "the thread meets them for a rank in the middle of a step"
        rank.ask()
        assert rank.answer is Answer.WAIT


def test_a_rank_that_has_its_last_question_behind_it_and_one_that_passes_it_are_apart():
    """With fewer batches on one rank: it meets there, and no other one comes."""
    world = ranks_of(2)
    few, many = world.ranks
    few.questions = [(0, True, True), (3, True, False), (7, True, True)]
    many.questions = [(0, True, True), (3, True, False), (6, True, False), (9, True, False)]
    meet_first(world)
    few.ask()
    few.ask()
    many.ask()
    many.ask()
    assert (few.answer, many.answer) == (Answer.MEET, Answer.PASS)
    world.round()
    world.round()
    assert few.meetings.apart
    assert many.meetings.apart
    assert few.meetings.stand_in() is None
    assert many.meetings.stand_in() is True


def test_a_rank_that_leaves_is_missed_only_by_who_asks_more_than_it():
    world = ranks_of(2)
    meet_first(world)
    leaves, stays = world.ranks
    for _ in range(3):
        leaves.ask()
    leaves.meetings.leave()
    world.round()
    assert [rank.then for rank in world.ranks] == [Next.NEVER] * 2
    stays.noticed = True
    for _ in range(3):
        stays.ask()
        assert stays.answer is Answer.PASS
    stays.ask()
    assert stays.answer is Answer.GONE
    assert stays.meetings.questions.count == 4


def test_a_rank_that_is_far_ahead_waits_for_the_slowest_one():
    world = ranks_of(2, steps=60)
    meet_first(world)
    ahead, slow = world.ranks
    for _ in range(9):
        ahead.ask()
    for _ in range(meetings._LONGEST_LEAD_ROUNDS - 1):
        world.round()
        ahead.ask()
        assert ahead.answer is Answer.PASS
    world.round()
    ahead.ask()
    assert ahead.answer is Answer.WAIT, "the slow one has not asked what this one asked before all these rounds"
    behind = ahead.meetings.questions.count
    while slow.meetings.questions.count < behind:
        slow.ask()
    world.round()
    ahead.ask()
    assert ahead.answer is Answer.PASS


@pytest.mark.parametrize("count", [2, 8])
def test_the_memory_of_questions_is_that_of_the_lead(count):
    world = ranks_of(count, steps=1000)
    meet_first(world)
    for _ in range(900):
        for rank in world.ranks:
            rank.ask()
        world.round()
        assert max(len(rank.meetings.questions._digests) for rank in world.ranks) <= 2
