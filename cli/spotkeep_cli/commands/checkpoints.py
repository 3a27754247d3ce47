"""`spotkeep checkpoints ls|verify|show|diff|export|import`: the saved states of a training, of a directory or a run."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, invocation_of
from spotkeep_cli.errors import DamagedCheckpointsError, UsageError
from spotkeep_cli.seams import Invocation
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotkeep.exchange import Exported
    from spotkeep_cli.checkpoints.export import ExportFormat
    from spotkeep_cli.checkpoints.listing import VerifiedCheckpoint
    from spotkeep_cli.checkpoints.places import CheckpointPlace, ShowProgress

_MOST_TRAININGS_SHOWN = 10

app = typer.Typer(help="Show the checkpoints of a directory or a run.", no_args_is_help=True)

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A directory of checkpoints, a run's id, or RUN:TRAINING where a script has several trainings.",
        show_default=False,
    ),
]
Step = Annotated[
    str | None,
    typer.Argument(metavar="[STEP]", help="Which one: 100, or step-100.", show_default="the newest"),
]


@app.command()
def ls(context: typer.Context, target: Target, *, as_json: AsJson = False) -> None:
    """List the checkpoints, newest first: sizes are compared, checksums are not."""
    from spotkeep_cli.checkpoints.listing import summaries
    from spotkeep_cli.checkpoints.view import checkpoint_list

    inspection = _Inspection(context, target, as_json=as_json)
    with inspection.translated_errors():
        listed = summaries(inspection.place)
    terminal = inspection.terminal
    if as_json:
        terminal.give_json([one.as_document() for one in listed])
        return
    others = [
        NextStep(command=inspection.command("ls", training=name), what=f"those of the training {name}")
        for name in inspection.place.trainings()[:_MOST_TRAININGS_SHOWN]
    ]
    if not listed:
        terminal.show(f"No checkpoints in {inspection.place.label}.")
        terminal.show_next(*others)
        return
    terminal.show(checkpoint_list(listed, width=terminal.people.width))
    if unread := inspection.place.unread:
        terminal.remark(f"Not read, because a later writer of the run had begun: {', '.join(sorted(unread))}")
    terminal.show_next(
        NextStep(command=inspection.command("verify"), what="verify the checksums"),
        NextStep(command=inspection.command("show"), what="what is in the newest"),
        *others,
    )


@app.command()
def verify(
    context: typer.Context,
    target: Target,
    step: Annotated[
        str | None,
        typer.Argument(metavar="[STEP]", help="Which one.", show_default="from the newest to the first good one"),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All of them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read every byte and name the damage. Exit code 13 when there is any.

    Says which checkpoint a resume would take.
    """
    from spotkeep_cli.checkpoints.listing import CheckpointState, taken_by_a_resume
    from spotkeep_cli.checkpoints.listing import verify as verify_one
    from spotkeep_cli.checkpoints.places import finished_steps, step_of
    from spotkeep_cli.checkpoints.view import verdict_text

    if everything and step is not None:
        raise UsageError("a step and --all were given", hint="give one of them")
    inspection = _Inspection(context, target, as_json=as_json)
    verdicts: list[VerifiedCheckpoint] = []
    with inspection.translated_errors():
        finished = finished_steps(inspection.place)
        if step is None:
            step_of(inspection.place, None)  # there is at least one
        for number in finished if step is None else [step_of(inspection.place, step)]:
            verdicts.append(verify_one(inspection.place, number, show_progress=inspection.show_progress))
            if not as_json:
                inspection.terminal.show(verdict_text(verdicts[-1]))
            if step is None and not everything and verdicts[-1].state is not CheckpointState.DAMAGED:
                break
    taken = taken_by_a_resume(verdicts, finished)
    if as_json:
        resumes = taken.step if taken is not None and taken.state is CheckpointState.WHOLE else None
        inspection.terminal.give_json({"checkpoints": [one.as_document() for one in verdicts], "resume_takes": resumes})
    else:
        inspection.terminal.show(_resume_text(taken, verdicts, finished))
    _end_as_found(verdicts, taken)
    good = taken or verdicts[0]
    inspection.terminal.show_next(
        NextStep(command=inspection.command("show", str(good.step)), what="what is in it"),
        NextStep(
            command=inspection.command("export", str(good.step), "state.safetensors", "--format", "safetensors"),
            what="take it elsewhere",
        ),
    )


@app.command()
def show(context: typer.Context, target: Target, step: Step = None, *, as_json: AsJson = False) -> None:
    """Show the content of a checkpoint: names, types, shapes, sizes, values. Data are not read."""
    from spotkeep_cli.checkpoints import elements
    from spotkeep_cli.checkpoints.listing import moment_of
    from spotkeep_cli.checkpoints.places import step_of
    from spotkeep_cli.checkpoints.view import checkpoint_tree, entry_document
    from spotkeep_cli.rendering.quantities import moment

    inspection = _Inspection(context, target, as_json=as_json)
    with inspection.translated_errors():
        number = step_of(inspection.place, step)
        with inspection.place.opened(number, with_data=False) as checkpoint:
            manifest, entries = checkpoint.manifest, checkpoint.entries()
    created = moment_of(manifest.created)
    if as_json:
        inspection.terminal.give_json(
            {
                "step": manifest.step,
                "epochs_completed": manifest.epochs_completed,
                "created": created.isoformat() if created else None,
                "library": manifest.library,
                "ranks": manifest.world_size,
                "metrics": {name: elements.as_json(value) for name, value in manifest.metrics.items()},
                "entries": [entry_document(entry) for entry in entries],
            }
        )
        return
    inspection.terminal.show(checkpoint_tree(manifest, entries, created=moment(created)))
    inspection.terminal.show_next(
        NextStep(command=inspection.command("verify", str(number)), what="verify the checksums"),
        NextStep(
            command=inspection.command("export", str(number), "state.safetensors", "--format", "safetensors"),
            what="take it elsewhere",
        ),
    )


@app.command()
def diff(
    context: typer.Context,
    first: Annotated[
        str, typer.Argument(metavar="TARGET", help="A directory or a run; or TARGET@STEP.", show_default=False)
    ],
    second: Annotated[str, typer.Argument(metavar="OLD", help="A step; or TARGET@STEP.", show_default=False)],
    third: Annotated[
        str | None, typer.Argument(metavar="[NEW]", help="A step; or TARGET@STEP.", show_default=False)
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show the changes of TARGET from OLD to NEW, or between two of TARGET@STEP."""
    from contextlib import ExitStack

    from spotkeep_cli.checkpoints.difference import difference
    from spotkeep_cli.checkpoints.elements import numpy_is_installed
    from spotkeep_cli.checkpoints.places import step_of
    from spotkeep_cli.checkpoints.view import change_document, checkpoint_changes

    references = _references(first, second, third)
    inspections = [_Inspection(context, target, as_json=as_json) for target, _ in references]
    with ExitStack() as stack:
        stack.enter_context(inspections[1].translated_errors())
        steps = [step_of(inspection.place, step) for inspection, (_, step) in zip(inspections, references, strict=True)]
        old, new = (
            stack.enter_context(inspection.place.opened(step, with_data=True))
            for inspection, step in zip(inspections, steps, strict=True)
        )
        size = sum(file.size for file in new.manifest.files)
        on_bytes = stack.enter_context(inspections[1].show_progress("comparing", size))
        found = difference(old, new, with_numpy=numpy_is_installed(), on_bytes=on_bytes)
    terminal = inspections[1].terminal
    if not numpy_is_installed():
        terminal.remark("NumPy is not installed: compared with the standard library, which takes much longer.")
    if as_json:
        changes = [change_document(change) for change in found.changes]
        terminal.give_json({"old": steps[0], "new": steps[1], "changes": changes, "unchanged": found.unchanged})
        return
    terminal.show(checkpoint_changes(found))
    terminal.show_next(
        NextStep(command=inspections[1].command("show", str(steps[1])), what="all that is in the newer one")
    )


Format = Annotated[
    str, typer.Option("--format", "-f", metavar="FORMAT", help="dcp, orbax, safetensors or torch.", show_default=False)
]


@app.command()
def export(
    context: typer.Context,
    target: Target,
    step: Annotated[str, typer.Argument(metavar="STEP", help="Which one: 100, or step-100.", show_default=False)],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file or folder to write.", show_default=False)],
    *,
    as_format: Format,
    shard_size: Annotated[
        str | None,
        typer.Option(
            "--shard-size",
            metavar="SIZE",
            help="The most bytes of a safetensors file, such as 5GB. OUT is a folder then, with an index if needed.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint's state for torch.distributed.checkpoint, Orbax, safetensors or torch.load."""
    from spotkeep_cli.checkpoints.export import ExportFormat, check_target
    from spotkeep_cli.checkpoints.export import export as export_to
    from spotkeep_cli.checkpoints.places import step_of

    chosen = _format(as_format)
    shard_bytes = None if shard_size is None else _bytes_of(shard_size)
    if shard_bytes is not None and chosen is not ExportFormat.SAFETENSORS:
        raise UsageError("--shard-size is of safetensors", hint="leave it out")
    check_target(out, overwrite=force, folder=chosen.is_folder(shard_bytes=shard_bytes))
    inspection = _Inspection(context, target, as_json=as_json)
    with inspection.translated_errors():
        number = step_of(inspection.place, step)
        with inspection.place.opened(number, with_data=True) as checkpoint:
            size = sum(file.size for file in checkpoint.manifest.files)
            with inspection.show_progress(f"writing {out.name}", size) as on_bytes:
                written = export_to(
                    checkpoint, out, as_format=chosen, overwrite=force, shard_bytes=shard_bytes, on_bytes=on_bytes
                )
    if as_json:
        inspection.terminal.give_json(
            {"step": number, "file": str(out), "format": chosen.value, "bytes": written.size,
             "tensors": written.tensors, "values": written.values, "left_out": _left_out(written.left_out)}
        )  # fmt: skip
        return
    _show_exported(inspection.terminal, written, out=out, step=number)
    if shard_bytes is None and chosen in _READING:
        read = _READING[chosen].format(name=json.dumps(str(out)))
        inspection.terminal.show_next(NextStep(command=f"python -c {shlex.quote(read)}", what="read it"))


_READING = {
    "safetensors": "import safetensors.torch; print(safetensors.torch.load_file({name}).keys())",
    "torch": "import torch; print(torch.load({name}).keys())",
    "dcp": "from torch.distributed.checkpoint import FileSystemReader as R; "
    "print(R({name}).read_metadata().state_dict_metadata.keys())",
    "orbax": "import os, orbax.checkpoint as o; "
    "print(o.StandardCheckpointer().restore(os.path.abspath({name})).keys())",
}
"""Programs that read an export, by its format."""


@app.command("import")
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of DCP or Orbax, a file of torch.save, or safetensors.",
            show_default=False,
        ),
    ],
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The checkpoints of the script.", show_default=False)
    ],
    *,
    step: Annotated[int, typer.Option("--step", min=0, help="The completed steps of the new checkpoint.")] = 0,
    as_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="dcp, orbax, safetensors or torch. Default: SOURCE shows it.",
            show_default=False,
        ),
    ] = None,
    under: Annotated[
        str | None,
        typer.Option(
            "--under",
            metavar="NAME",
            help="The name of the whole state in the script, such as model.",
            show_default="its own names, and model for safetensors",
        ),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option("--prefix", metavar="TEXT", help="Only names that begin with it, without it.", show_default=False),
    ] = "",
    arrays: Annotated[
        str | None,
        typer.Option(
            "--arrays",
            metavar="LIBRARY",
            help="torch or numpy: the library of the script's arrays.",
            show_default="numpy for Orbax, else torch",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a checkpoint of the same step.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a checkpoint that a script resumes from, of one of another library. Nothing in it is executed."""
    from spotkeep_cli.checkpoints.export import import_from
    from spotkeep_cli.checkpoints.listing import translated_errors
    from spotkeep_cli.rendering.quantities import counted, size

    chosen = None if as_format is None else _format(as_format)
    terminal = Terminal(as_json=as_json)
    with translated_errors(verify_command=shlex.join(["spotkeep", "checkpoints", "verify", str(directory)])):
        made = import_from(
            source,
            directory,
            step=step,
            as_format=chosen,
            under=under,
            prefix=prefix,
            arrays=arrays,
            overwrite=force,
        )
    if as_json:
        terminal.give_json(
            {"step": made.step, "directory": str(directory), "format": made.format, "bytes": made.size,
             "tensors": made.tensors, "values": made.values, "left_out": _left_out(made.left_out)}
        )  # fmt: skip
        return
    holds = f"{counted(made.tensors, 'tensor')}, {counted(made.values, 'plain value')}"
    terminal.show(f"{directory}/step-{made.step} holds {source} ({made.format}): {holds}, {size(made.size)}.")
    _remark_left_out(terminal, made.left_out, because="only their own code can make them")
    show = shlex.join(["spotkeep", "checkpoints", "show", str(directory), str(made.step)])
    terminal.show_next(NextStep(command=show, what="the names that the script has to pass"))


def _format(text: str) -> ExportFormat:
    from spotkeep_cli.checkpoints.export import ExportFormat

    if text not in list(ExportFormat):
        raise UsageError(f"there is no format {text!r}", hint=f"one of {', '.join(ExportFormat)}")
    return ExportFormat(text)


def _bytes_of(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})([KMGT]?B?)", text.strip().upper())
    unit = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
    if match is None or not int(match.group(1)):
        raise UsageError(f"{text!r} is no size", hint="write for example 500MB or 5GB")
    thousands: int = 1000 ** unit[match.group(2).rstrip("B")]
    return int(match.group(1)) * thousands


def _left_out(left_out: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "why": why} for name, why in left_out]


class _Inspection:
    """One command's view of one place."""

    def __init__(self, context: typer.Context, target: str, *, as_json: bool) -> None:
        from spotkeep_cli.checkpoints.places import place_of

        self.terminal = Terminal(as_json=as_json)
        self._invocation: Invocation = invocation_of(context)
        self._target = target
        with self.translated_errors():
            self.place: CheckpointPlace = place_of(
                target, invocation=self._invocation, show_progress=self.show_progress
            )

    @property
    def show_progress(self) -> ShowProgress:
        from spotkeep_cli.rendering.progress_bars import showing_bytes

        return partial(showing_bytes, self.terminal.remarks)

    def command(self, name: str, *more: str, training: str | None = None) -> str:
        """Return another command on the same place, or on one of the trainings in it."""
        target = self._target
        if training is not None:
            target = (
                f"{target.rstrip('/')}/{training}" if Path(target).expanduser().is_dir() else f"{target}:{training}"
            )
        return self._invocation.command(shlex.join(["checkpoints", name, target, *more]))

    def translated_errors(self) -> AbstractContextManager[None]:
        """Turn what the library raises into a line and a hint."""
        from spotkeep_cli.checkpoints.listing import translated_errors

        return translated_errors(verify_command=self.command("verify", "--all"))


def _references(first: str, second: str, third: str | None) -> list[tuple[str, str]]:
    """Return the two places and steps that `diff` was given."""
    given = [(first, first), (second, second)] if third is None else [(first, second), (first, third)]
    references = []
    for target, text in given:
        place, at, step = text.rpartition("@")
        if not at and third is None:
            raise UsageError(
                "two checkpoints are needed",
                hint="give TARGET OLD NEW, or TARGET@STEP twice: checkpoints@100 checkpoints@200",
            )
        references.append((place, step) if at else (target, text))
    return references


def _resume_text(
    taken: VerifiedCheckpoint | None, verdicts: Sequence[VerifiedCheckpoint], finished: Sequence[int]
) -> str:
    from spotkeep_cli.checkpoints.listing import CheckpointState

    known = {verdict.step for verdict in verdicts}
    if taken is not None and taken.state is CheckpointState.WHOLE:
        return f"A resume takes step {taken.step}."
    if taken is not None:
        return f"A resume stops at step {taken.step}: it needs the newer version."
    unknown = next((step for step in finished if step not in known), None)
    if unknown is not None:
        return f"A resume tries step {unknown} first; it was not verified here."
    return "A resume finds no good checkpoint and starts from the beginning."


def _end_as_found(verdicts: Sequence[VerifiedCheckpoint], taken: VerifiedCheckpoint | None) -> None:
    from spotkeep_cli.checkpoints.listing import CheckpointState
    from spotkeep_cli.rendering.quantities import counted

    damaged = [verdict for verdict in verdicts if verdict.state is CheckpointState.DAMAGED]
    if damaged:
        raise DamagedCheckpointsError(
            f"{len(damaged):,} damaged, of {counted(len(verdicts), 'checkpoint')} verified",
            hint="nothing to repair: a resume passes over it"
            if taken
            else "older checkpoints may be good: verify --all",
        )
    newer = next((verdict for verdict in verdicts if verdict.state is CheckpointState.NEWER), None)
    if newer is not None:
        raise UsageError(
            f"step {newer.step} was written in a newer format", hint="verify it with the version that wrote it"
        )


def _show_exported(terminal: Terminal, written: Exported, *, out: Path, step: int) -> None:
    from spotkeep_cli.rendering.quantities import counted, size

    holds = f"{counted(written.tensors, 'tensor')}, {counted(written.values, 'plain value')}"
    terminal.show(f"{out} holds step {step}: {holds}, {size(written.size)}.")
    _remark_left_out(terminal, written.left_out, because="the format cannot hold them")


def _remark_left_out(terminal: Terminal, left_out: Sequence[tuple[str, str]], *, because: str) -> None:
    from spotkeep_cli.rendering.printable import printable_line

    if not left_out:
        return
    terminal.remark(f"Left out, because {because}: {len(left_out):,}")
    for name, why in left_out[:20]:
        terminal.remark(f"  {printable_line(name, longest=60)}: {printable_line(why, longest=80)}")
    if len(left_out) > 20:
        terminal.remark(f"  ... and {len(left_out) - 20:,} more; --json lists them all")
