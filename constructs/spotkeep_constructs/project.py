"""The paths in a checkout from which a synth packs, and to which it builds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, kw_only=True)
class Project:
    """The directories of a checkout that a synth reads and writes.

    Attributes:
        functions: Source root of the functions.
        planner: Source root of the planner, with the steering that the functions carry.
        training: Source root of the code inside jobs and on instances.
        lock: Hashed requirements of the functions.
        search_lock: Hashed requirements of the function that searches by TPE.
        layers: Directory of built dependency layers, one folder a hash.
        archives: Directory of packed code, one folder a hash.
        uv_cache: Directory of uv's downloads.
    """

    functions: Path
    planner: Path
    training: Path
    lock: Path
    search_lock: Path
    layers: Path
    archives: Path
    uv_cache: Path

    @classmethod
    def at(cls, root: Path) -> Self:
        """Return the project of a checkout.

        Args:
            root: The directory that holds cdk.json.
        """
        state = root / ".spotkeep"
        return cls(
            functions=root / "lambda",
            planner=root / "planner",
            training=root / "training",
            lock=root / "locks" / "lambda.txt",
            search_lock=root / "locks" / "search.txt",
            layers=state / "layers",
            archives=state / "archives",
            uv_cache=state / "cache" / "uv",
        )

    @classmethod
    def of_this_checkout(cls) -> Self:
        """Return the project of the checkout that this module is in."""
        return cls.at(Path(__file__).resolve().parents[2])
