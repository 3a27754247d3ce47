"""Facts about the start of this process. A script may have changed its directory by the time that it asks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .loaded import loaded

try:
    _AT_THE_IMPORT: Path | None = Path.cwd()
except OSError:  # it is gone
    _AT_THE_IMPORT = None


def directory_at_start() -> Path | None:
    """Give the working directory that the script was started in. None where that is not known.

    Hydra gives it. Otherwise it comes from the script's path, which Python makes absolute at the start, while the
    argument stays as it was given. Otherwise it is the directory at the import of this library.
    """
    configuration = getattr(loaded("hydra.core.hydra_config"), "HydraConfig", None)
    if configuration is not None and configuration.initialized():
        return Path(configuration.get().runtime.cwd)
    script, argument = str(getattr(sys.modules.get("__main__"), "__file__", "")), sys.argv[0] if sys.argv else ""
    ending = os.sep + argument[2:] if argument.startswith("./") else os.sep + argument
    if argument and Path(script).is_absolute() and script.endswith(ending):
        return Path(script[: -len(ending)] or os.sep)
    return _AT_THE_IMPORT
