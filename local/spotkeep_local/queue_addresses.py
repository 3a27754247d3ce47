"""Moves what a server's state says of queues to the port that the next server listens on.

ministack keys a queue by its address, port included, and looks for a function's queue under the port of today. A state
that comes up on another port (the old one is taken, or the directory is a copy) would keep its queues where nobody
looks: messages go in, and no function ever takes them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_HOLDERS: Final = ("sqs.json", "cloudformation.json", "lambda.json")
"""The queues; what a Ref of a queue gave in a template; what that gave a function's environment."""


def move_to(port: int, *, services: Path, account_id: str) -> int:
    """Rewrite the addresses of a server that is not running.

    Args:
        port: Where the next server listens, on 127.0.0.1.
        services: ministack's STATE_DIR.
        account_id: Twelve digits, the first part of a queue's path.

    Returns:
        How many addresses had another port.
    """
    elsewhere = re.compile(rf"http://127\.0\.0\.1:(?!{port}/)\d+/{account_id}/")
    moved = 0
    for name in _HOLDERS:
        path = services / name
        if not path.exists():
            continue
        text, found = elsewhere.subn(f"http://127.0.0.1:{port}/{account_id}/", path.read_text())
        if found:
            replacement = path.with_suffix(".moved")
            replacement.write_text(text)
            replacement.replace(path)
            moved += found
    return moved
