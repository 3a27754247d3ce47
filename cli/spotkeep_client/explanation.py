"""Errors as a notebook shows them: the hint, and each problem of a refusal, stand below the message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spotkeep_cli.errors import CommandLineError, RefusedError


@contextmanager
def explained() -> Iterator[None]:
    """Add to an error of the command line what that would print below it."""
    try:
        yield
    except CommandLineError as error:
        if not getattr(error, "__notes__", None):
            for problem in error.problems if isinstance(error, RefusedError) else ():
                error.add_note(f"- {problem}")
            if error.hint:
                error.add_note(f"Hint: {error.hint}")
        raise
