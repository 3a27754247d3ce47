"""What a library must say of its folders so that they can be judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .folder import Folder


class Series(NamedTuple):
    """The nearest other checkpoints of a training: it writes the same files each time.

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
        recognises: Whether a folder is of this kind, by what is in it.
        problem: Why it is not whole, or None.
    """

    recognises: Callable[[Folder], bool]
    problem: Callable[[Folder, Series], str | None]
