"""Exports a checkpoint to the formats of other libraries, and imports theirs.

The work is that of the library. Here its errors become a line and a hint.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from spotkeep.errors import ExchangeError, MissingLibraryError, SaveError
from spotkeep.exchange import import_checkpoint
from spotkeep.exchange.exports import Exported, write_export
from spotkeep.exchange.files import check_target as refuse_target
from spotkeep.exchange.imports import NAME_THE_FORMAT
from spotkeep_cli.errors import CommandLineError, UsageError
from spotkeep_cli.rendering.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from spotkeep.disk.inspection import InspectedCheckpoint
    from spotkeep.exchange import Imported


class ExportFormat(StrEnum):
    """The formats of other libraries."""

    DCP = "dcp"
    ORBAX = "orbax"
    SAFETENSORS = "safetensors"
    TORCH = "torch"

    def is_folder(self, *, shard_bytes: int | None) -> bool:
        """Return True for a format of several files."""
        return self in (ExportFormat.DCP, ExportFormat.ORBAX) or shard_bytes is not None


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except ExchangeError as error:
        hint = error.hint.replace("allow it to be replaced", "add --force to replace it")
        hint = hint.replace(NAME_THE_FORMAT, "add --format safetensors or --format torch")
        raise UsageError(printable_line(error.problem), hint=hint) from error
    except MissingLibraryError as error:
        problem, _, hint = str(error).partition(": ")
        raise UsageError(problem, hint=hint) from error
    except SaveError as error:
        raise CommandLineError(printable_line(str(error))) from error


def check_target(target: Path, *, overwrite: bool, folder: bool = False) -> None:
    """Refuse a target before anything is downloaded or read for it.

    Raises:
        UsageError: If it is there already, or cannot be such a file or folder.
    """
    with _translated():
        refuse_target(target, overwrite=overwrite, folder=folder)


def export(
    checkpoint: InspectedCheckpoint,
    target: Path,
    *,
    as_format: ExportFormat,
    overwrite: bool,
    shard_bytes: int | None = None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Exported:
    """Write a checkpoint's state in another format. Every byte that goes there is verified first.

    Args:
        checkpoint: The checkpoint.
        target: The file or folder.
        as_format: Its format.
        overwrite: True to replace what is there.
        shard_bytes: The most bytes of arrays in each file of a folder of safetensors. None for one file.
        on_bytes: Called with each number of bytes read.

    Raises:
        DamagedCheckpointError: If it is damaged. Nothing was written.
        UsageError: If the target is there, it cannot be written, or the format cannot hold the state.
    """
    with _translated():
        return write_export(
            checkpoint, target, format=as_format.value, overwrite=overwrite, shard_bytes=shard_bytes, on_bytes=on_bytes
        )


def import_from(
    source: Path,
    directory: Path,
    *,
    step: int,
    as_format: ExportFormat | None,
    under: str | None,
    prefix: str,
    arrays: str | None,
    overwrite: bool,
) -> Imported:
    """Make a checkpoint from one of another library. See `spotkeep.exchange.import_checkpoint`.

    Raises:
        UsageError: If the source is damaged or hostile, or there is such a checkpoint.
        CommandLineError: If the disk refuses.
    """
    with _translated():
        return import_checkpoint(
            source,
            directory,
            step=step,
            format=None if as_format is None else as_format.value,
            under=under,
            prefix=prefix,
            arrays=arrays,
            overwrite=overwrite,
        )
