"""The paths of the sources that a synth packs, and of the folders to which it builds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from spotkeep_constructs.carried import cache_folder, carried, source_root, state_folder


@dataclass(frozen=True, kw_only=True)
class Project:
    """The directories that a synth reads and writes.

    Attributes:
        functions: Source root of the functions, with a package for each.
        jobs: Source root of the library that the functions share.
        planner: Source root of the planner, with the steering that the functions carry.
        training: Source root of the code inside jobs and on instances.
        lock: Hashed requirements of the functions.
        search_lock: Hashed requirements of the function that searches by TPE.
        layers: Directory of built dependency layers, one folder a hash.
        archives: Directory of packed code, one folder a hash.
        uv_cache: Directory of uv's downloads.
    """

    functions: Path
    jobs: Path
    planner: Path
    training: Path
    lock: Path
    search_lock: Path
    layers: Path
    archives: Path
    uv_cache: Path

    @classmethod
    def at(cls, root: Path) -> Self:
        """Return the project of a CDK app. Its sources are those of the installed Spotkeep, a checkout or a wheel.

        Args:
            root: The directory that holds cdk.json. Everything is built in its `state_folder`.
        """
        state = state_folder(root)
        return cls(
            functions=carried("lambda"),
            jobs=source_root("spotkeep_jobs"),
            planner=source_root("spotkeep_planner"),
            training=source_root("spotkeep"),
            lock=carried("locks/lambda.txt"),
            search_lock=carried("locks/search.txt"),
            layers=state / "layers",
            archives=state / "archives",
            uv_cache=cache_folder(root) / "uv",
        )
