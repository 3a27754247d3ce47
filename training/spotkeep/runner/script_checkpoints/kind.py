"""The facts on a library's folders that a judgement needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .folder import Folder


class Series(NamedTuple):
    """The nearest other checkpoints of a training, which writes the same files each time.

    Attributes:
        earlier: Whole ones of this kind with a smaller number, the largest last.
        before: Those with a smaller number, whole or not.
        after: Those with a larger number, whole or not.
    """

    earlier: Sequence[Folder] = ()
    before: Sequence[Folder] = ()
    after: Sequence[Folder] = ()


class Kind(NamedTuple):
    """A folder that is one checkpoint.

    Attributes:
        recognises: Gives True if a folder is of this kind, by its content.
        problem: The reason why it is not whole, or None.
    """

    recognises: Callable[[Folder], bool]
    problem: Callable[[Folder, Series], str | None]
