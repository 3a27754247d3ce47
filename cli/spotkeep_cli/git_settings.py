"""How git is called in a directory that may be somebody else's work.

git reads the settings of the repository around it, and starts programs that they name. A repository that comes as an
archive brings its settings along, and so does a bare one that is committed inside another.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

WITHOUT_PROGRAMS: Final = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""Options of git itself. Source: https://git-scm.com/docs/git-config (core.fsmonitor, core.hooksPath)"""


def environment_allowing(protocols: Sequence[str]) -> dict[str, str]:
    """The environment of a git that speaks these protocols alone, whatever settings say.

    Args:
        protocols: Names of git's: `https`, `ssh`. None for a git that has no need of the network.

    Source: https://git-scm.com/docs/git (GIT_ALLOW_PROTOCOL, GIT_NO_LAZY_FETCH)
    """
    return {**os.environ, "GIT_ALLOW_PROTOCOL": ":".join(protocols), "GIT_NO_LAZY_FETCH": "1"}
