"""The command `spotkeep rehearse [options] -- command`.

It runs the command twice and leaves it alone, runs it once more and takes its machine away, judges, and reports.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import NoReturn

from spotkeep_fleet.printable_text import printable
from spotkeep_rehearsal.comparison import MOST_FILES, FileComparison, compare_files
from spotkeep_rehearsal.evidence import Life, LifeEnding, RehearsalError, RunFacts
from spotkeep_rehearsal.folders import (
    CHECKPOINTS,
    WRITTEN_KINDS,
    CheckpointPlace,
    Disk,
    detect_place,
    is_log,
    remove_tree,
)
from spotkeep_rehearsal.known_of_libraries import this_machine_has_a_gpu, what_is_not_rehearsed
from spotkeep_rehearsal.losses import PlacedLoss, PlannedLoss, notice_seconds_of, place, planned_losses
from spotkeep_rehearsal.milestones import Milestones, find_milestones
from spotkeep_rehearsal.page import page_of
from spotkeep_rehearsal.report import document_of, junit_of, next_command, run_document, text_of
from spotkeep_rehearsal.runs import Plan, Rehearsal
from spotkeep_rehearsal.status_line import StatusLine, text_width, wrapped
from spotkeep_rehearsal.verdict import Facts, Verdict, judge, judge_alone, needs_finished_start, not_judged
from spotkeep_rehearsal.world import absolute_paths, asked_of, caller_environment, interpreter_of

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0}
_MOST_RESULTS = 2
_MOST_TRIES = 3
"""A run that wrote no more files may have written its result alone."""
_MOST_SHOWN_LINES = 30
_USAGE, _OUR_FAULT = 64, 70
_PAGE = "rehearsal.html"


def main(arguments: Sequence[str]) -> int:
    """Rehearse a command.

    Args:
        arguments: The words behind `spotkeep rehearse`.

    Returns:
        The exit code. 0 for PASS, 1 for FAIL, 2 for NOT JUDGED, 64 for a wrong use, 70 for a fault of
        the judge.
    """
    parser = _parser()
    try:
        options = _parsed(parser, arguments)
    except ValueError as error:
        sys.stderr.write(printable(f"spotkeep rehearse: {error}") + "\n")
        return _USAGE
    given = list(arguments)[: list(arguments).index("--")]
    with _ended_in_order():
        try:
            return _Command(options, given=given).run()
        except BrokenPipeError:
            # The reader of the report has ended, as `head` does. Python would write to it once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        except Exception:  # noqa: BLE001 - the exit code 1 of a traceback would say FAIL
            traceback.print_exc()
            return _OUR_FAULT


class _Parser(argparse.ArgumentParser):
    """A parser whose exit code for a wrong option is not the one of NOT JUDGED."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong.

        Raises:
            ValueError: Always.
        """
        raise ValueError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="spotkeep rehearse",
        usage="spotkeep rehearse [options] -- COMMAND ...",
        description="Run a training command here, take its machine away, and judge whether it comes back.",
        epilog="exit codes: 0 PASS, 1 FAIL, 2 NOT JUDGED, 64 wrong use. This folder gets no file but those that"
        " options name.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--checkpoints",
        metavar="DIR",
        help="the checkpoint folder. Default: /opt/ml/checkpoints where the command writes there, or the folder that it"
        " is seen to write",
    )
    parser.add_argument(
        "--interrupt-at",
        metavar="40%|STEP|30s|first-save",
        action="append",
        default=[],
        help="when to take the machine away. Repeatable. Default: before the first save, at 35%% with a notice, and at"
        " 70%% without",
    )
    parser.add_argument("--losses", metavar="N", type=int, help="take it away N times, at drawn moments")
    parser.add_argument(
        "--seed", metavar="NUMBER", type=int, help="the seed of what is drawn. Default: a new one, shown"
    )
    parser.add_argument("--no-notice", action="store_true", help="send no SIGTERM before the machine goes")
    parser.add_argument(
        "--copy",
        choices=("whole", "sagemaker"),
        default="whole",
        help="how checkpoints come back. sagemaker: file by file, in no order, cut off anywhere",
    )
    parser.add_argument("--for", dest="stop_after", metavar="2m", help="stop each run at the step that it reaches then")
    parser.add_argument("--timeout", metavar="15m", default="15m", help="the longest time of one run. Default: 15m")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write a JUnit file")
    parser.add_argument(
        "--html",
        metavar="FILE",
        nargs="?",
        const=Path(_PAGE),
        type=Path,
        help=f"write the report as a page for a browser. Default: {_PAGE}",
    )
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep what the runs left in this new folder")
    parser.add_argument(
        "--no-mounts", action="store_true", help="copy the folder and rewrite paths, as on macOS, in place of mounts"
    )
    return parser


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Read the options.

    Raises:
        ValueError: They are wrong.
    """
    words = list(arguments)
    if "--" not in words:
        if "-h" in words or "--help" in words:
            parser.parse_args(words)
        raise ValueError("give the command behind `--`, for example: spotkeep rehearse -- python train.py")
    split = words.index("--")
    options = parser.parse_args(words[:split])
    options.words = words[split + 1 :]
    if not options.words:
        raise ValueError("there is no command behind `--`")
    options.timeout_seconds = _seconds(options.timeout, "--timeout")
    options.stop_seconds = None if options.stop_after is None else _seconds(options.stop_after, "--for")
    if options.losses is not None and options.losses < 1:
        raise ValueError(f"--losses takes a number from 1, found {options.losses}")
    options.seed = random.SystemRandom().randrange(10_000) if options.seed is None else options.seed
    options.planned = planned_losses(
        options.interrupt_at, drawn=options.losses, seed=options.seed, notice=not options.no_notice
    )
    if options.keep is not None and options.keep.exists():
        if not options.keep.is_dir():
            raise ValueError(f"--keep takes a new folder, and {options.keep} is a file")
        if any(options.keep.iterdir()):
            raise ValueError(f"--keep takes a new folder, and {options.keep} has something in it")
    for name in ("junit", "html"):
        file = getattr(options, name)
        if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
            raise ValueError(f"--{name} takes a file in a folder that exists, found {file}")
    try:
        options.folder = Path.cwd()
    except FileNotFoundError:
        raise ValueError("the folder that this shell is in is gone: cd to one that exists") from None
    if options.folder == options.folder.parent:
        raise ValueError(f"this folder is {options.folder}, the whole machine: cd to the folder of the training")
    return options


def _seconds(text: str, option: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise ValueError(f"{option} takes a time such as 90s, 2m or 1h, found {text!r}")
    return float(found[1]) * _UNITS[found[2]]


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Turn the first signal into an exit, so that every process ends and every file goes. Others cannot break that."""
    signums = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def leave(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature is Python's
        for each in signums:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + signum)

    before = {signum: signal.signal(signum, leave) for signum in signums}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class _Command:
    """One rehearsal."""

    def __init__(self, options: argparse.Namespace, *, given: Sequence[str]) -> None:
        self._options, self._given = options, given
        self._words: list[str] = options.words
        self._folder: Path = options.folder
        self._environment = caller_environment(os.environ, folder=self._folder)
        self._began = time.monotonic()
        self._output = StatusLine(sys.stderr if options.json else sys.stdout, began=self._began)
        self._shown_lines = 0
        self._shows_output = False
        self._remarks: list[str] = []
        self._facts: dict[str, object] = {}
        self._runs: list[RunFacts] = []
        self._stop_seconds: float | None = options.stop_seconds
        self._watched: Mapping[str, object] = {}

    def run(self) -> int:
        options = self._options
        scratch = (
            options.keep.absolute() if options.keep is not None else Path(tempfile.mkdtemp(prefix="spotkeep-rehearse-"))
        )
        scratch = Path(os.path.realpath(scratch))
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            verdict = self._judged(scratch)
        except RehearsalError as error:
            verdict = not_judged(str(error), change=error.hint)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            verdict = not_judged(
                f"{scratch.parent} has no space left for the runs", change="name a larger disk: TMPDIR=/data/tmp"
            )
        finally:
            remove_tree(scratch / "machine")
            if options.keep is None:
                remove_tree(scratch)
        verdict = replace(verdict, remarks=(*verdict.remarks, *self._remarks))
        self._report(verdict)
        return verdict.status.exit_code

    def _judged(self, scratch: Path) -> Verdict:
        options = self._options
        interpreter = self._interpreter()
        disk = Disk(self._folder, scratch=scratch, isolated=not options.no_mounts)
        self._choose_place(disk)
        rehearsal = Rehearsal(
            self._words,
            environment=self._environment,
            disk=disk,
            scratch=scratch,
            timeout_seconds=options.timeout_seconds,
            say=self._say,
            show=self._show,
        )
        self._say(f"rehearsing in {self._folder}, {_way(disk)}")
        self._facts["mounts"] = disk.has_overlay
        if options.losses is not None or options.copy != "whole":
            self._say(f"seed {options.seed} (--seed {options.seed} draws the same again)")
        self._watched = disk.watched_files()
        alone = self._run(rehearsal, Plan(name="alone", stop_after_seconds=self._stop_seconds))
        if (early := judge_alone(self._words, alone)) is not None:
            return early
        if disk.place is None:
            alone = self._find_place(rehearsal, alone)
            if (early := judge_alone(self._words, alone)) is not None:
                return early
        self._facts["checkpoints"] = None if disk.place is None else disk.place.shown
        by_library = any(life.reports_steps for life in alone.lives)
        own = find_milestones(alone.lives[-1].lines)
        stop_at = self._stop_at(alone, own, by_library=by_library)
        stop = Plan(
            name="again",
            milestones=own,
            by_library=by_library,
            stop_at=stop_at,
            stop_after_seconds=self._stop_seconds if stop_at is None else None,
        )
        again = self._run(rehearsal, stop)
        if (early := judge_alone(self._words, again)) is not None:
            return early
        milestones = find_milestones(alone.lives[-1].lines, again.lives[-1].lines)
        if stop_at is not None and not by_library:
            stop_at = len(milestones.keys) - 1 if milestones.keys else None
        fraction, losses = 0.0, []
        for loss in options.planned:
            found = self._placed(loss, alone, milestones, by_library=by_library, fraction_before=fraction)
            fraction = loss.at_fraction or fraction
            losses += [found] if found is not None else []
        self._shows_output = True
        run = self._interrupted(
            rehearsal,
            replace(
                stop,
                name="interrupted",
                losses=losses,
                milestones=milestones,
                stop_at=stop_at,
                notice_seconds=notice_seconds_of(alone.lives[-1].seconds),
                cut_off_by=random.Random(options.seed) if options.copy == "sagemaker" else None,  # noqa: S311
            ),
        )
        facts = Facts(
            command=self._words,
            alone=alone,
            again=again,
            run=run,
            planned_losses=len(losses),
            were_asked=bool(options.interrupt_at or options.losses),
            milestones=milestones,
            compared=self._compared(run, alone, interpreter),
            noise=self._compared(alone, again, interpreter),
            place=None if disk.place is None or disk.place.is_of_logs else disk.place.shown,
            other_folders=() if disk.place is None else disk.place.others,
            was_stopped=self._stop_seconds is not None,
        )
        if needs_finished_start(facts):
            # Nothing that it printed or wrote shows where it went on.
            control = self._run(rehearsal, replace(stop, name="finished", begins_with=disk.checkpoints_of(alone)))
            facts = replace(facts, finished=control.lives[-1])
        verdict = judge(facts)
        if by_library and verdict.counted_by != "steps":
            verdict = replace(verdict, counted_by="steps")
        return verdict

    def _interpreter(self) -> str:
        path = self._environment["PATH"]
        interpreter = interpreter_of(self._words, path=path, folder=self._folder)
        if shutil.which(self._words[0], path=path) is None:
            program = self._folder / self._words[0]
            if program.is_file() and os.sep in self._words[0]:
                raise RehearsalError(
                    f"{self._words[0]} is no program that can be started",
                    hint=f"name the program that runs it (python {self._words[0]}), or make it one with chmod +x",
                )
            raise RehearsalError(
                f"the command {self._words[0]!r} was not found on PATH",
                hint="activate the environment that has it, or give its path",
            )
        if interpreter is None:
            return sys.executable
        interpreter, has_spotkeep = asked_of(interpreter, environment=self._environment, folder=self._folder)
        self._facts["python"] = interpreter
        if not has_spotkeep:
            self._remarks.append(
                f"the script's Python has no spotkeep, so steps are counted by what it prints. {interpreter} -m pip"
                " install spotkeep lets a script report them (spotkeep.report_progress)"
            )
        unseen = what_is_not_rehearsed(self._words, has_gpu=this_machine_has_a_gpu())
        if unseen:
            self._remarks.append(unseen)
        return interpreter

    def _choose_place(self, disk: Disk) -> None:
        given = self._options.checkpoints
        values = [*self._words, *self._environment.values()]
        for path in absolute_paths(self._words):
            inside = path == str(self._folder) or path.startswith(f"{self._folder}/")
            if not inside and not path.startswith("/opt/ml/") and not Path(path).exists():
                disk.redirect(path)
        if given is None:
            return
        path = os.path.normpath(self._folder / given)
        if f"{self._folder}/".startswith(f"{path.rstrip('/')}/"):
            raise RehearsalError(
                "--checkpoints is this folder itself, or one that holds it", hint="name a folder in it, or leave it out"
            )
        if Path(path).exists() and not Path(path).is_dir():
            raise RehearsalError(f"--checkpoints takes a folder, and {given} is a file", hint="name its folder")
        if path.startswith(f"{self._folder}/"):
            disk.place = CheckpointPlace(inside=os.path.relpath(path, self._folder))
            return
        named = any(path in value for value in values)
        if path == CHECKPOINTS:
            named = named or disk.has_opt_ml
        elif named:
            disk.redirect(path)
        elif not disk.has_overlay:
            raise RehearsalError(
                f"{path} cannot be given to the command: this machine allows no mounts of its own, and neither the"
                " command nor its environment names the path",
                hint="let the script take its checkpoint folder from an argument, and name it with --checkpoints",
            )
        disk.place = CheckpointPlace(outside=path)

    def _find_place(self, rehearsal: Rehearsal, alone: RunFacts) -> RunFacts:
        """Find the checkpoint folder by what the first run wrote, and return the run as seen from there."""
        disk, life = rehearsal.disk, alone.lives[-1]
        writes = [(write.seconds, write.name) for write in life.writes]
        found = detect_place(
            life.left_files, writes, seconds=life.seconds, folder=self._folder, outside=disk.outside_paths
        )
        saved = [name for _, name in writes if found is not None and found.holds_result(name) and not is_log(name)]
        if len(saved) <= _MOST_RESULTS:
            # A command that finds old checkpoints of a training that is done writes nothing, or its result alone.
            if (anew := self._without_old(rehearsal, [*life.left_files])) is not None:
                return anew
            if found is not None and self._runs[-1] is not alone:
                disk.place = found
                return self._run(rehearsal, Plan(name="alone", stop_after_seconds=self._stop_seconds))
        if found is None:
            if not disk.has_opt_ml and (line := self._names_opt_ml()):
                raise RehearsalError(
                    f"this machine allows no mounts of its own, and {line} names {CHECKPOINTS}, so the checkpoint"
                    " folder cannot be kept",
                    hint="let the script take the folder from an argument or from SPOTKEEP_CHECKPOINT_DIR, or name"
                    " another with --checkpoints DIR",
                )
            disk.place = detect_place(
                life.left_files,
                writes,
                seconds=life.seconds,
                folder=self._folder,
                outside=disk.outside_paths,
                of_logs=True,
            ) or CheckpointPlace(outside=CHECKPOINTS)
        else:
            disk.place = found
            self._say(f"it writes its checkpoints to {found.shown} (--checkpoints names another folder)")
        if disk.place.names is not None and not disk.place.is_of_logs:
            self._remarks.append(
                f"{disk.place.shown} lies beside the source. On AWS a checkpoint folder is one of its own: let the"
                " script take it from an argument"
            )
        if disk.begins_with_old_files():
            self._say("the folder had old checkpoints: once more without them")
            return self._run(rehearsal, Plan(name="alone", stop_after_seconds=self._stop_seconds))
        place_found = disk.place
        files = {
            name: replace(file, is_checkpoint=place_found.holds_result(name)) for name, file in alone.files.items()
        }
        return replace(alone, lives=tuple(place_found.life_from(each) for each in alone.lives), files=files)

    def _without_old(self, rehearsal: Rehearsal, written: Sequence[str]) -> RunFacts | None:
        """Run once without the old checkpoints in the folder. None where that makes no difference."""
        disk = rehearsal.disk
        old = [
            name for name in disk.caller_files() if Path(name).suffix.lower() in WRITTEN_KINDS and name not in written
        ]
        disk.place = detect_place(old, [], seconds=1.0, folder=self._folder)
        if disk.place is None:
            return None
        self._say(f"the folder has old files in {disk.place.shown}: once more without them")
        anew = self._run(rehearsal, Plan(name="alone", stop_after_seconds=self._stop_seconds))
        if anew.completed and any(not is_log(write.name) for write in anew.lives[-1].writes):
            return anew
        disk.place = None
        return None

    def _names_opt_ml(self) -> str | None:
        for path in sorted(self._folder.glob("**/*.py"))[:500]:
            with contextlib.suppress(OSError):
                for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
                    if CHECKPOINTS in line:
                        return f"{path.relative_to(self._folder)}:{number}"
        return None

    def _stop_at(self, alone: RunFacts, milestones: Milestones, *, by_library: bool) -> int | None:
        life = alone.lives[-1]
        if life.ending is not LifeEnding.LIMIT:
            self._stop_seconds = None
            return None
        if by_library:
            self._say(f"each run stops at step {life.last_step}, counted by the spotkeep library")
            return life.last_step
        if milestones.keys:
            self._say(f"each run stops at line {len(milestones.keys)} of those that count, counted by the output")
            return len(milestones.keys) - 1
        self._say("each run stops by time: no line of the output counts steps")
        return None

    def _placed(
        self, loss: PlannedLoss, alone: RunFacts, milestones: Milestones, *, by_library: bool, fraction_before: float
    ) -> PlacedLoss | None:
        life = alone.lives[-1]
        times = [time for _, time in life.step_times] if by_library else milestones.times
        steps = [step for step, _ in life.step_times] if by_library else None
        first = min((write.seconds for write in life.writes if not is_log(write.name)), default=None)
        placed = place(
            loss,
            times=times,
            seconds=life.seconds,
            first_save_seconds=first,
            steps=steps,
            fraction_before=fraction_before,
            writes=[write.seconds for write in life.writes if not is_log(write.name)],
        )
        if placed is not None and steps is not None and placed.position is not None:
            return replace(placed, position=steps[placed.position])
        return placed

    def _interrupted(self, rehearsal: Rehearsal, plan: Plan) -> RunFacts:
        """Run the command with its losses.

        On a busy machine a loss comes late, or the runs left alone were slower. Then the command may end before the
        next loss. It is run again, with that loss in the middle of the life that came to its end.
        """
        run = self._run(rehearsal, plan)
        for _ in range(_MOST_TRIES - 1):
            taken = sum(life.was_taken for life in run.lives)
            before, due = plan.losses[:taken], plan.losses[taken:]
            if not (run.completed and due and due[0].in_life):
                break
            self._say("the command ended before an interruption was due: once more")
            self._runs.remove(run)
            sooner = replace(due[0], seconds=run.lives[-1].seconds / 2, writes=None)
            plan = replace(plan, losses=(*before, sooner, *due[1:]))
            run = self._run(rehearsal, plan)
        return run

    def _run(self, rehearsal: Rehearsal, plan: Plan) -> RunFacts:
        names = {"alone": "left alone", "again": "left alone again", "interrupted": "interrupted"}
        names["finished"] = "started with the checkpoints of a run that is done"
        self._say(f"{names[plan.name]} ...")
        alone = None if not self._runs else sum(life.seconds for life in self._runs[0].lives)
        with self._output.showing(names[plan.name], expected_seconds=alone):
            run = rehearsal.run(plan)
        seconds = sum(life.seconds for life in run.lives)
        last = run.lives[-1]
        ended = "completed" if last.done else "stopped" if last.ending is LifeEnding.LIMIT else _ended(last)
        self._say(f"{names[plan.name]}: {ended} after {seconds:.1f} s")
        self._runs.append(run)
        if (changed := _changed(self._watched, rehearsal.disk.watched_files())) is not None:
            raise RehearsalError(
                f"the command wrote {changed} itself, and not a copy: by an absolute path, through a link that leads"
                " out of this folder, or because it is too large to copy",
                hint="look at that file. Let the command write to a path relative to this folder that is no link, or"
                " name a linked checkpoint folder with --checkpoints DIR, which is then replaced by one of its own",
            )
        return run

    def _compared(self, run: RunFacts, reference: RunFacts, interpreter: str) -> Mapping[str, FileComparison]:
        pairs = {
            name: (file.path, reference.files[name].path)
            for name, file in sorted(run.files.items())
            if name in reference.files and file.sha256 != reference.files[name].sha256 and not is_log(name)
        }
        if not pairs:
            return {}
        found = compare_files(
            dict(list(pairs.items())[:MOST_FILES]),
            interpreter=interpreter,
            path=self._environment["PATH"],
            trusted=True,
            import_from=[self._folder],
            most_shown=5_000,
        )
        return {each.name: each for each in found}

    def _report(self, verdict: Verdict) -> None:
        seconds = time.monotonic() - self._began
        command, purpose = next_command(verdict, words=self._words, options=self._given)
        for line in [*text_of(verdict), "", f"Next: {command}", f"      {purpose}"]:
            self._output.write(line)
        if self._options.keep is not None:
            self._output.write(f"Kept: {self._options.keep}")
        if self._options.html is not None:
            checkpoints, when = self._facts.get("checkpoints"), datetime.now(timezone.utc)
            text = page_of(
                verdict,
                words=self._words,
                runs=self._runs,
                seconds=seconds,
                checkpoints=None if checkpoints is None else str(checkpoints),
                next_step=(command, purpose),
                footer=f"Written by spotkeep rehearse in {self._folder} on {when:%Y-%m-%d %H:%M} UTC",
            )
            self._options.html.write_text(text, encoding="utf-8")
            self._output.write(f"Page: {self._options.html}")
        if self._options.junit is not None:
            self._options.junit.write_bytes(junit_of(verdict, words=self._words, seconds=seconds))
        if self._options.json:
            facts = {
                **self._facts,
                "seed": self._options.seed,
                "seconds": round(seconds, 3),
                "runs": [run_document(run) for run in self._runs],
                "next": command,
            }
            sys.stdout.write(json.dumps(document_of(verdict, words=self._words, facts=facts), indent=2) + "\n")

    def _say(self, text: str) -> None:
        self._shown_lines = 0
        elapsed = f"{time.monotonic() - self._began:6.1f} s  "
        for line in wrapped(text, indent=elapsed, hanging=" " * len(elapsed)):
            self._output.write(line)

    def _show(self, text: str) -> None:
        self._output.said(text)
        if self._shows_output and self._shown_lines < _MOST_SHOWN_LINES:
            self._shown_lines += 1
            self._output.write(f"          | {text}"[: text_width()])


def _way(disk: Disk) -> str:
    if disk.has_overlay:
        return "in mounts of its own" + ("" if disk.has_opt_ml else ", without /opt/ml")
    return "in a copy of it"


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> str | None:
    """Return the first file that is new, has changed or is gone."""
    return next((name for name in sorted({*before, *after}) if before.get(name) != after.get(name)), None)


def _ended(life: Life) -> str:
    if life.ending is LifeEnding.TIMEOUT:
        return "not ended"
    return f"ended with code {life.exit_code}"
