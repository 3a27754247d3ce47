"""Errors in the records of instances and functions, and in the input of a run."""

from __future__ import annotations

from collections.abc import Sequence


class DocumentError(Exception):
    """A document is not as it should be.

    Attributes:
        problems: One sentence for each problem, with its place, the value found and the remedy.
    """

    def __init__(self, what: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{what} cannot be read:\n" + "\n".join(f"  - {problem}" for problem in problems))


class ChannelDataError(Exception):
    """The objects of a channel cannot be its files, or there are none. The message names keys and location."""


class SecretError(Exception):
    """The value of a secret cannot be had. The message names the secret, and never a value."""
