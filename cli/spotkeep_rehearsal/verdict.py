"""Decides the verdict on a command, in one pure function over the facts.

PASS needs two things. The command went on after a loss, and its result is that of a run that was left alone. A command
that begins anew ends with the same bits where it is deterministic, so equal results alone are no PASS.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotkeep.runner.failure import failure_text
from spotkeep_rehearsal.comparison import FileComparison
from spotkeep_rehearsal.evidence import Life, LifeEnding, RunFacts
from spotkeep_rehearsal.files import FileVerdict, ModelJudgement, judge_files
from spotkeep_rehearsal.folders import is_log, numbered
from spotkeep_rehearsal.known_of_libraries import line_to_change, why_it_failed, why_the_model_differs
from spotkeep_rehearsal.milestones import MetricComparison, Milestones, compare_metrics, find_milestones

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NO_RANKS = "environment variable RANK expected, but not set"
"""The words of torch, where a script joins other ranks and nothing has started them."""
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_SHARE_OF_TIME = 0.6
_SIGTERM = 143
"""The exit code of a command that SIGTERM ended, maybe while it wrote a draft."""
_FEWEST_WRITES = 3


class Status(enum.Enum):
    """The verdict."""

    PASS = "PASS"  # noqa: S105 - no password
    FAIL = "FAIL"
    NOT_JUDGED = "NOT JUDGED"

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return {Status.PASS: 0, Status.FAIL: 1, Status.NOT_JUDGED: 2}[self]


class Going(enum.Enum):
    """The way in which a command started after a loss."""

    ON = "went on"
    ANEW = "began anew"
    NOTHING = "found no checkpoint"
    UNKNOWN = "not shown"


@dataclass(frozen=True)
class LossFacts:
    """A loss of the machine and its cost.

    Attributes:
        notice: True if a SIGTERM came first.
        seconds: The length of the life that it ended.
        at_step: The step, or the number of milestones, at that moment. None where nothing was counted.
        resumed_from: The step, or the number of milestones, from which the next life went on. None as above.
        repeated: Steps that were repeated. None as above.
        going: The way in which the next life started.
        found_files: The checkpoint files that the next life found.
        read_files: Those that it read. None where that cannot be seen.
        seconds_to_catch_up: Seconds from the next start to the step of the loss, 0 where nothing was repeated. None
            where nothing was counted.
    """

    notice: bool
    seconds: float
    at_step: int | None
    resumed_from: int | None
    repeated: int | None
    going: Going
    found_files: tuple[str, ...]
    read_files: tuple[str, ...] | None
    seconds_to_catch_up: float | None = None


@dataclass(frozen=True)
class Verdict:
    """The judgement.

    Attributes:
        status: The verdict.
        headline: The verdict in a sentence.
        reasons: Every reason why it is no PASS.
        losses: The cost of each loss.
        remarks: Questions that it leaves open.
        change: The line to change, or the thing to do.
        counted_by: The things that were counted, such as `steps` or `lines`.
    """

    status: Status
    headline: str
    reasons: tuple[str, ...] = ()
    losses: tuple[LossFacts, ...] = ()
    remarks: tuple[str, ...] = ()
    change: str | None = None
    counted_by: str = "time"


@dataclass(frozen=True)
class Facts:
    """All that a verdict uses.

    Attributes:
        command: The words of the command.
        alone: A run left alone.
        again: The other one.
        run: The run that was interrupted.
        planned_losses: The number of its losses in the plan.
        other_folders: Other folders that the command wrote while it trained. None of them survives.
        were_asked: True if the caller asked for these losses, and they are not the usual ones.
        milestones: The milestones of the command.
        compared: The files of the interrupted run and of the first one that differ in bytes, compared by value.
        noise: The files of the runs left alone that differ in bytes, compared by value.
        place: The checkpoint folder, for people. None where none was found.
        finished: A start with the checkpoints of a run that is done. None where it was not needed.
        was_stopped: True if every run was stopped at one step (`--for`).
    """

    command: Sequence[str]
    alone: RunFacts
    again: RunFacts
    run: RunFacts
    planned_losses: int
    milestones: Milestones
    compared: Mapping[str, FileComparison]
    noise: Mapping[str, FileComparison]
    place: str | None
    finished: Life | None = None
    was_stopped: bool = False
    were_asked: bool = False
    other_folders: Sequence[str] = ()


def judge_alone(command: Sequence[str], run: RunFacts) -> Verdict | None:
    """Judge a run that was left alone. None where it ended well, so that there is something to compare with."""
    if run.completed:
        return None
    life = run.lives[-1]
    if life.ending is LifeEnding.TIMEOUT:
        return not_judged(
            f"the command did not end within {life.seconds:.0f} s",
            change="give it longer (--timeout 2h), or stop each run at the same step (--for 2m)",
        )
    text = _failure(command, life)
    missing = _MISSING.search(text)
    if missing:
        module = missing[1].partition(".")[0]
        return not_judged(
            f"the script imports {module!r}, which its Python does not have",
            change=f"install it where the script runs: python -m pip install {module}",
            reasons=(text,),
        )
    if _NO_RANKS in " ".join(text.split()):
        return not_judged(
            "the script is a rank of a distributed training, and no launcher started it",
            change="start its ranks: spotkeep rehearse -- torchrun --nproc-per-node 2 SCRIPT.py",
            reasons=(text,),
        )
    return not_judged(
        "the command does not end well when it is left alone",
        change="run the command by itself first, and mend what it says",
        reasons=(text,),
    )


def not_judged(headline: str, *, change: str, reasons: Sequence[str] = ()) -> Verdict:
    """Return a verdict that judges nothing."""
    return Verdict(Status.NOT_JUDGED, headline, reasons=tuple(reasons) or (headline,), change=change)


def judge(facts: Facts) -> Verdict:
    """Judge a command by its three runs."""
    for each in (facts.alone, facts.again):
        if (early := judge_alone(facts.command, each)) is not None:
            return early
    losses = tuple(losses_of(facts))
    counted_by = _counted_by(facts)
    if _goes_on_by_itself(facts):
        return not_judged(
            "the second run that was left alone did not begin at the beginning",
            change="the command keeps something outside its folder and the checkpoint folder: name the directory with"
            " --checkpoints DIR",
        )
    failed = _failed(facts, losses)
    if any(_NO_SPACE.search(text) for text in failed):
        return not_judged(
            "the disk was full in the interrupted run", change="name a larger disk: TMPDIR=/data/tmp", reasons=failed
        )
    gone = _gone(facts, losses)
    model, metrics = _result(facts)
    fails = [*failed, *gone.fails, *([] if failed else _differences(facts, model, metrics))]
    absent = _losses_that_did_not_come(facts, losses)
    suffices = not facts.were_asked and any(loss.going is Going.ON for loss in losses)
    open_ = [*gone.open, *([] if fails else _not_shown(model, metrics)), *([] if suffices else absent)]
    remarks = (*model.remarks, *gone.remarks, *(absent if suffices else []))
    if fails:
        return Verdict(
            Status.FAIL,
            _headline_of(gone, failed),
            reasons=tuple(fails),
            losses=losses,
            remarks=remarks,
            change=_change(facts, gone, failed),
            counted_by=counted_by,
        )
    if open_:
        return Verdict(
            Status.NOT_JUDGED,
            "nothing speaks against it, and not everything was shown",
            reasons=tuple(open_),
            losses=losses,
            remarks=remarks,
            change="take the machine away less often, or at other moments (--interrupt-at 40%)"
            if absent and list(open_) == absent
            else "let it print a line an epoch, such as `epoch 3: loss 0.41`, or report its steps"
            " (spotkeep.report_progress)",
            counted_by=counted_by,
        )
    headline, more = _pass_headline(model, metrics)
    return Verdict(Status.PASS, headline, losses=losses, remarks=(*more, *remarks), counted_by=counted_by)


def losses_of(facts: Facts) -> list[LossFacts]:
    """List the losses of the interrupted run."""
    lives = facts.run.lives
    return [
        _loss(facts, life, lives[number + 1] if number + 1 < len(lives) else None)
        for number, life in enumerate(lives)
        if life.was_taken
    ]


def _loss(facts: Facts, life: Life, after: Life | None) -> LossFacts:
    at_step = resumed = None
    if life.reports_steps:
        at_step = life.last_step
        if after is not None and after.reports_steps:
            resumed = after.resumed_step or 0
    else:
        before = facts.milestones.positions_in(life.lines)
        at_step = max(before) + 1 if before else None
        shown = [] if after is None else facts.milestones.positions_in(facts.milestones.without_replay(after.lines))
        if shown:
            resumed = shown[0]
        elif after is not None and after.done and at_step is not None:
            resumed = at_step
    repeated = max(0, at_step - resumed) if at_step is not None and resumed is not None else None
    return LossFacts(
        notice=life.ending is LifeEnding.NOTICE,
        seconds=life.seconds,
        at_step=at_step,
        resumed_from=resumed,
        repeated=repeated,
        going=_going(facts, life, after, at_step=at_step, resumed=resumed),
        found_files=after.found_files if after is not None else life.left_files,
        read_files=after.read_files if after is not None else None,
        seconds_to_catch_up=_seconds_to_catch_up(facts, after, at_step=at_step, repeated=repeated),
    )


def _seconds_to_catch_up(
    facts: Facts, after: Life | None, *, at_step: int | None, repeated: int | None
) -> float | None:
    if after is None or at_step is None or not repeated:
        return None if repeated is None else 0.0
    if after.reports_steps:
        reached = (seconds for step, seconds in after.step_times if step >= at_step)
    else:
        known = facts.milestones.positions
        shown = ((known.get(key), line.seconds) for line in after.lines if (key := facts.milestones.key_of(line.text)))
        reached = (seconds for position, seconds in shown if position is not None and position >= at_step - 1)
    # A life that ended before it was there did nothing else.
    return min(next(reached, after.seconds), after.seconds)


def _going(facts: Facts, life: Life, after: Life | None, *, at_step: int | None, resumed: int | None) -> Going:
    if after is None:
        return Going.UNKNOWN
    if all(map(is_log, after.found_files)):
        # A small state may have the kind of a log.
        went_on = bool(after.found_files) and at_step is not None and at_step >= 2 and bool(resumed)
        return Going.ON if went_on else Going.NOTHING
    # A first milestone is repeated where the only checkpoint is older than it.
    if at_step is not None and at_step >= 2 and resumed is not None:
        if resumed > 0:
            return Going.ON
        if not _counts_from_zero_again(facts, at_step):
            return Going.ANEW
        return Going.ON if after.done else Going.UNKNOWN
    if after.read_files == () and (after.done or after.seconds > 0.5 * facts.alone.lives[-1].seconds):
        return Going.ANEW
    if not facts.milestones.keys and not life.reports_steps:
        by_writes = _going_by_writes(facts, life, after)
        if by_writes is not Going.UNKNOWN:
            return by_writes
        shortest = min(facts.alone.lives[-1].seconds, facts.again.lives[-1].seconds)
        saved_time = shortest - after.seconds
        if after.done and after.read_files and saved_time >= max(_SHARE_OF_TIME * life.seconds, 0.25 * shortest):
            return Going.ON
        return _going_when_finished(facts, facts.finished)
    return Going.UNKNOWN


def _going_when_finished(facts: Facts, finished: Life | None) -> Going:
    """Judge by a start with the checkpoints of a run that is done. A command that goes on has next to nothing to do."""
    if finished is None or not finished.done:
        return Going.UNKNOWN
    alone = facts.alone.lives[-1]
    usual, then = (sum(1 for write in life.writes if not is_log(write.name)) for life in (alone, finished))
    if usual >= _FEWEST_WRITES and then >= 0.8 * usual:
        return Going.ANEW
    if (usual >= _FEWEST_WRITES and then <= 0.2 * usual) or finished.seconds <= 0.5 * alone.seconds:
        return Going.ON
    return Going.UNKNOWN


def needs_finished_start(facts: Facts) -> bool:
    """Return True where only a start with the checkpoints of a run that is done can show how the command starts."""
    goings = {loss.going for loss in losses_of(facts)}
    shown = Going.ON in goings or Going.ANEW in goings
    left = any(not is_log(name) for name in facts.alone.lives[-1].left_files)
    return facts.run.completed and left and Going.UNKNOWN in goings and not shown and not facts.was_stopped


def _counts_from_zero_again(facts: Facts, at_step: int) -> bool:
    """Return True for a command that goes on, and numbers what is left from the beginning.

    One that begins anew shows every milestone in its last life.
    """
    last = facts.run.lives[-1]
    shown = set(facts.milestones.positions_in(last.lines))
    count = len(facts.milestones.keys)
    return last.done and not last.reports_steps and 0 < len(shown) <= count - _SHARE_OF_TIME * at_step


def _going_by_writes(facts: Facts, life: Life, after: Life) -> Going:
    """Judge by the checkpoints that were written. A command that begins anew writes the first one again."""
    alone, before, then = (
        [write.name for write in each.writes if not is_log(write.name)] for each in (facts.alone.lives[-1], life, after)
    )
    names = list(dict.fromkeys(alone))
    alike = {numbered(name) for name in names}
    if len(names) >= 3 and len(alike) <= len(names) / 3:
        if names[0] in then:
            return Going.ANEW
        return Going.ON if names[0] in after.found_files and (then or after.done) else Going.UNKNOWN
    if len(alone) >= 5 and len(before) >= 2 and after.done:
        if len(then) >= len(alone) - 0.25 * len(before):
            return Going.ANEW
        if len(then) <= len(alone) - _SHARE_OF_TIME * len(before):
            return Going.ON
    return Going.UNKNOWN


@dataclass(frozen=True)
class _Gone:
    fails: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    began_anew: bool = False
    saved_nothing: bool = False


def _gone(facts: Facts, losses: Sequence[LossFacts]) -> _Gone:
    """Judge how the command started after each loss."""
    goings = [loss.going for loss in losses]
    first_on = goings.index(Going.ON) if Going.ON in goings else None
    anew = [number for number, going in enumerate(goings) if going is Going.ANEW]
    against = [number for number in anew if first_on is None or number > first_on]
    fails = [_began_anew(number + 1, losses[number], facts.other_folders) for number in against]
    fails += [
        text
        for number, loss in enumerate(losses, start=1)
        if (text := _too_much_lost(number, loss, facts.run)) is not None
    ]
    remarks = [
        f"interruption {number + 1}: the script began anew, though files were there; later it went on"
        for number in anew
        if number not in against
    ]
    if first_on is None and (text := _saved_elsewhere_on_notice(facts)) is not None:
        return _Gone(open=(text,))
    if first_on is not None or against:
        return _Gone(fails=tuple(fails), remarks=tuple(remarks), began_anew=bool(against))
    alone = facts.alone.lives[-1]
    # A command may remove its checkpoints when it is done.
    saved = [name for name in (*alone.left_files, *(write.name for write in alone.writes)) if not is_log(name)]
    if not saved:
        where = facts.place or "the checkpoint directory (/opt/ml/checkpoints, which SPOTKEEP_CHECKPOINT_DIR names)"
        text = (
            f"the script wrote nothing into {where}, so it began anew after each interruption: let it save there and"
            " load when it starts"
        )
        return _Gone(fails=(text,), began_anew=True, saved_nothing=True)
    last = facts.alone.lives[-1]
    first = min((write.seconds for write in last.writes if not is_log(write.name)), default=last.seconds)
    if losses and all(going is Going.NOTHING for going in goings):
        if first >= 0.9 * last.seconds or _after_all_milestones(facts, first):
            text = (
                f"the script wrote its first file ({saved[0]}) when its training was over, so it began anew after each"
                " interruption: let it save while it trains"
            )
            return _Gone(fails=(text,), began_anew=True, saved_nothing=True)
        text = (
            f"the script's first checkpoint came after {first:.0f} of {last.seconds:.0f} s, after the last"
            " interruption, so nothing shows that it goes on from one: let it save sooner, or take the machine later"
            " (--interrupt-at 90%)"
        )
        return _Gone(open=(text,))
    text = (
        "nothing shows from where the script went on: it prints no line that counts its epochs or steps, writes too few"
        " files to count, and saved no time that could be seen"
    )
    return _Gone(open=(text,))


def _saved_elsewhere_on_notice(facts: Facts) -> str | None:
    """Return a sentence on what a command saved when it left on a notice, and nowhere near its other files."""
    known = {numbered(name) for name in (*facts.alone.files, *(write.name for write in facts.alone.lives[-1].writes))}
    left = [
        life for life in facts.run.lives if life.ending is LifeEnding.NOTICE and life.exit_code not in (None, _SIGTERM)
    ]
    names = sorted({name for life in left for name in life.lost_files if numbered(name) not in known})
    if not names:
        return None
    return (
        f"the script wrote {', '.join(names[:3])} when it was interrupted, outside of the checkpoint folder, so it was"
        " lost with the machine: let it save into a folder of its own, and name that with --checkpoints DIR"
    )


def _after_all_milestones(facts: Facts, seconds: float) -> bool:
    """Return True for a time after the last milestone, or so shortly before that it may be read later than it came."""
    times = facts.milestones.times
    if len(times) < 2:
        return False
    late = 0.25 * (times[-1] - times[0]) / (len(times) - 1)
    return seconds > times[-1] - late


def _began_anew(number: int, loss: LossFacts, others: Sequence[str]) -> str:
    files = [name for name in loss.found_files if not is_log(name)]
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    read = ", and the script read none of it" if loss.read_files == () else ""
    steps = "" if loss.at_step is None else f" {loss.at_step} steps were done again."
    because = "It does not load what it saved"
    if others:
        because = (
            f"It also writes {', '.join(others[:3])}, which did not come back: one folder survives an interruption, so"
            " save all that a start needs in one, or name the folder that holds it all with --checkpoints DIR"
        )
    return (
        f"interruption {number}: {files[-1]}{more} of the checkpoint folder came back{read}. The script began"
        f" anew.{steps} {because}"
    )


def _too_much_lost(number: int, loss: LossFacts, run: RunFacts) -> str | None:
    """Judge what a script that reports its steps lost, as the full rehearsal does."""
    if not any(life.reports_steps for life in run.lives) or loss.repeated is None or loss.going is Going.NOTHING:
        return None
    if loss.notice:
        if loss.repeated <= 1:
            return None
        return (
            f"interruption {number} came with notice at step {loss.at_step} and the script went on from step"
            f" {loss.resumed_from}: {loss.repeated} steps were repeated where one is the most; save when SIGTERM"
            " arrives"
        )
    gaps = [
        later - earlier
        for life in run.lives
        for earlier, later in zip([life.resumed_step or 0, *life.saved_steps], life.saved_steps)
    ]
    interval = max(gaps, default=None)
    if interval is None or loss.repeated <= 2 * interval:
        return None
    return (
        f"interruption {number}: {loss.repeated} steps were repeated, more than the checkpoint interval of {interval}"
        f" steps allows (step {loss.at_step} back to step {loss.resumed_from})"
    )


def _failed(facts: Facts, losses: Sequence[LossFacts]) -> list[str]:
    """Return the reasons of an interrupted run that did not end well."""
    if facts.run.completed:
        return []
    life = facts.run.lives[-1]
    if life.ending is LifeEnding.TIMEOUT:
        return [
            f"the interrupted run did not end within {sum(each.seconds for each in facts.run.lives):.0f} s, and the run"
            f" left alone took {facts.alone.lives[-1].seconds:.0f} s"
        ]
    text = _failure(facts.command, life)
    if not losses:
        return [
            "the script ended on the notice with a code of an error, so its job would fail. 0, 75 and the end by"
            f" SIGTERM count as interrupted: {text}"
        ]
    read = {name for loss in losses for name in loss.read_files or ()}
    because = why_it_failed(read)
    return [f"the interrupted run failed after interruption {len(losses)}: {text}", *([because] if because else [])]


def _result(facts: Facts) -> tuple[ModelJudgement, MetricComparison]:
    model = judge_files(facts.run, facts.alone, facts.again, compared=facts.compared, noise=facts.noise)
    metrics = compare_metrics(
        facts.milestones.without_replay(facts.run.lives[-1].lines),
        facts.alone.lives[-1].lines,
        facts.again.lives[-1].lines,
        facts.milestones,
    )
    return model, metrics


def _differences(facts: Facts, model: ModelJudgement, metrics: MetricComparison) -> list[str]:
    """Return the reasons of a result that differs."""
    if not facts.run.completed:
        return []
    known = why_the_model_differs({name for life in facts.run.lives for name in life.left_files})
    because = [f"{known[0].upper()}{known[1:]}"] if known else []
    metrics_agree = metrics.repeatable and metrics.equal and metrics.compared > 0
    if model.verdict is FileVerdict.DIFFERS and not (facts.was_stopped and metrics_agree):
        return [*model.reasons, *because]
    if model.verdict is FileVerdict.SHORTER:
        return ["the final files lack what was there before the loss: " + "; ".join(model.remarks), *because]
    if model.verdict is FileVerdict.EQUAL or model.small_noise:
        return []
    if metrics.compared and metrics.repeatable and not metrics.equal:
        return [
            f"what the script prints differs from the runs left alone, in {metrics.first_difference}: something that"
            " training depends on is not in the checkpoint (random state, data order, optimizer)",
            *because,
        ]
    if not metrics.repeatable and metrics.tells and metrics.far:
        return [
            "two runs left alone differ from each other, but less than the interrupted run does: after the loss its"
            f" metrics are where a training begins ({metrics.first_difference})"
        ]
    return []


def _not_shown(model: ModelJudgement, metrics: MetricComparison) -> list[str]:
    """Return what is not shown of a result that does not differ."""
    if model.verdict is FileVerdict.EQUAL or model.small_noise:
        return []
    if metrics.compared and metrics.repeatable and metrics.equal and model.verdict is not FileVerdict.NOISE:
        return []
    if not metrics.repeatable or model.verdict is FileVerdict.NOISE:
        if metrics.tells and metrics.near:
            return []
        return [
            "two runs of this script that were left alone end with different results, so equal ones cannot be asked"
            " for, and its metrics do not show that it went on with what it had learned: give it a seed"
        ]
    return [
        "nothing shows the result: the script left no file that can be compared, and printed no metric",
        *model.remarks[:1],
    ]


def _losses_that_did_not_come(facts: Facts, losses: Sequence[LossFacts]) -> list[str]:
    if len(losses) >= facts.planned_losses or not facts.run.completed:
        return []
    return [
        f"{facts.planned_losses} interruption(s) were planned and {len(losses)} happened: the command ended before they"
        " were due"
    ]


def _goes_on_by_itself(facts: Facts) -> bool:
    own = find_milestones(facts.alone.lives[-1].lines)
    first = next((key for line in facts.again.lives[-1].lines if (key := own.key_of(line.text)) is not None), None)
    return len(own.keys) >= 3 and first is not None and own.positions.get(first, 0) > 0 and not facts.was_stopped


def _pass_headline(model: ModelJudgement, metrics: MetricComparison) -> tuple[str, list[str]]:
    if model.verdict is FileVerdict.EQUAL:
        if model.by_bytes:
            return "The final model equals, bit for bit, that of a run that was left alone.", []
        if model.by_arrays:
            return "The arrays of the final model hold the values of one that was left alone.", []
        return "The final model holds the values of one that was left alone. Its bytes differ.", []
    if model.small_noise:
        return "The final model differs from one that was left alone no more than two such runs do, by rounding.", []
    if metrics.repeatable and metrics.equal:
        return "It went on, and prints the metrics of a run that was left alone.", []
    return (
        "It went on, and its metrics are those of a run that was left alone, as near as two such runs are.",
        [
            "the final model is no evidence: two runs of this script that were left alone end with different ones, too."
            " An optimizer or a data order that is not restored could hide in that"
        ],
    )


def _headline_of(gone: _Gone, failed: Sequence[str]) -> str:
    if gone.began_anew:
        return "It begins anew after an interruption."
    if failed:
        return "It does not come back from an interruption."
    if gone.fails:
        return "An interruption costs more than it has to."
    return "It goes on, and ends with another result than a run that was left alone."


def _change(facts: Facts, gone: _Gone, failed: Sequence[str]) -> str:
    text = " ".join(facts.command)
    outputs = "\n".join(line.text for life in facts.run.lives for line in life.lines[:200])
    names = {name for life in (*facts.run.lives, *facts.alone.lives) for name in life.left_files}
    return line_to_change(text, outputs, names, began_anew=gone.began_anew, failed=bool(failed))


def _counted_by(facts: Facts) -> str:
    if any(life.reports_steps for life in facts.alone.lives):
        return "steps"
    if facts.milestones.keys:
        return "lines"
    return "time"


def _failure(command: Sequence[str], life: Life) -> str:
    tail = "\n".join(line.text for line in life.lines[-40:]).encode()
    return failure_text(command=command, exit_code=life.exit_code or 0, stderr_tail=tail)
