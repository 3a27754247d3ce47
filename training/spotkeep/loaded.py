"""Libraries that a script uses anyway. They are used when they are there, and never imported for it."""

from __future__ import annotations

import sys
from typing import Any


def loaded(name: str) -> Any:
    """Give a module that is imported. None when it is not, or another thread is in the middle of importing it.

    A module is in `sys.modules` from the beginning of its import on, with half of its names missing. Saving and
    computing checksums go on in threads, so that middle is met.

    Args:
        name: The name of the module.
    """
    module = sys.modules.get(name)
    importing = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if importing else module
