"""What goes wrong with a checkpoint, in the command line's words."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from spotkeep.errors import DamagedCheckpointError, NewerFormatError
from spotkeep_cli.errors import CommandLineError, DamagedCheckpointsError, UsageError
from spotkeep_cli.rendering.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator


def damage_text(error: DamagedCheckpointError) -> str:
    """The file, the place in it where it is known, and the problem, on one line."""
    if error.offsets is None:
        return printable(f"{error.file}: {error.problem}")
    start, end = error.offsets
    return printable(f"{error.file}, bytes {start:,} to {end - 1:,}: {error.problem}")


@contextmanager
def told(*, verify_command: str) -> Iterator[None]:
    """Turns what the library raises into one line and a hint.

    Args:
        verify_command: A command that names all damage.

    Raises:
        DamagedCheckpointsError: If a checkpoint is damaged.
        UsageError: If it needs a newer version, or may not be read.
        CommandLineError: If there is not enough memory.
    """
    try:
        yield
    except DamagedCheckpointError as error:
        raise DamagedCheckpointsError(damage_text(error), hint=f"all that is wrong: {verify_command}") from error
    except NewerFormatError as error:
        raise UsageError(printable(str(error)), hint="look at it with the version that wrote it") from error
    except MemoryError as error:
        raise CommandLineError(
            "this machine has not enough memory for it", hint="export it with --format safetensors, which needs little"
        ) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise UsageError(f"{where}{error.strerror or error}", hint="is it there, and may you read it?") from error
