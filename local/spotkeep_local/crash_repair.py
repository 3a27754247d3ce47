"""Puts right, before a start, what a hard kill can leave behind in ministack's files.

ministack replaces each file atomically, so none is half written. What remains are four things that only two
files together can have wrong:

- a temporary file beside an S3 object: it would come back as an object that nobody has put;
- a function's code, removed before the state that no longer names it was written: the older state would come
  back with a function that has none. `keep_function_code` holds a second link to what the state names;
- a stack that was being worked on: nobody works on it any more, and the CDK would wait for it for ever;
- files of ministack's own that were being written.
"""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

from spotkeep_local.errors import PersistenceError

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)

_TEMPORARY = ".tmp"
_SIDECAR = ".meta.json"
_STACK_STATE = "cloudformation.json"
# What the CDK starts over from: it deletes a stack whose creation failed and updates one that was rolled back.
_SETTLED_STATUS = {
    "CREATE_IN_PROGRESS": "ROLLBACK_FAILED",
    "ROLLBACK_IN_PROGRESS": "ROLLBACK_FAILED",
    "UPDATE_IN_PROGRESS": "UPDATE_ROLLBACK_COMPLETE",
    "UPDATE_ROLLBACK_IN_PROGRESS": "UPDATE_ROLLBACK_COMPLETE",
    "DELETE_IN_PROGRESS": "DELETE_FAILED",
}


def repair(*, services: Path, objects: Path) -> None:
    """Repairs the files of a server that is not running.

    Args:
        services: ministack's STATE_DIR.
        objects: ministack's S3_DATA_DIR.

    Raises:
        PersistenceError: A file cannot be read; it is not what ministack writes.
    """
    for path in list(objects.rglob(f"*{_TEMPORARY}")):
        # An object whose key ends so has a sidecar; a file that was being written has none.
        if path.is_file() and not path.with_name(path.name + _SIDECAR).exists():
            path.unlink()
    for path in services.glob(f"*{_TEMPORARY}"):
        path.unlink()
    _link_missing(source=_kept_code(services), target=_code(services))
    _settle_stacks(services / _STACK_STATE)


def keep_function_code(services: Path) -> None:
    """Remembers the code that the state on disk names; to be called each time that state was written."""
    code, kept = _code(services), _kept_code(services)
    _link_missing(source=code, target=kept)
    if kept.is_dir():
        for path in list(kept.iterdir()):
            if not (code / path.name).exists():
                path.unlink()


def _code(services: Path) -> Path:
    return services / "lambda-blobs"


def _kept_code(services: Path) -> Path:
    return services / "lambda-blobs-kept"


def _link_missing(*, source: Path, target: Path) -> None:
    if not source.is_dir():
        return
    target.mkdir(exist_ok=True)
    for path in source.glob("*.zip"):
        if not (target / path.name).exists():
            os.link(path, target / path.name)


def _settle_stacks(path: Path) -> None:
    if not path.exists():
        return
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        stacks: dict[str, Any] = document["payload"]["stacks"].get("data", {})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PersistenceError(
            f"{path} is damaged ({error!r}); remove the state directory to begin with an empty local AWS"
        ) from error
    unsettled = [stack for stack in stacks.values() if stack.get("StackStatus") in _SETTLED_STATUS]
    if not unsettled:
        return
    for stack in unsettled:
        settled = _SETTLED_STATUS[stack["StackStatus"]]
        _log.warning(
            "stack %s was %s when the server was killed: now %s", stack.get("StackName"), stack["StackStatus"], settled
        )
        stack["StackStatus"] = settled
        stack["StackStatusReason"] = "The local AWS was killed while it worked on this stack"
    replacement = path.with_suffix(".repaired")
    replacement.write_text(json.dumps(document))
    replacement.replace(path)
