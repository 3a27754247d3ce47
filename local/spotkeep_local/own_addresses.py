"""Moves what a server's state says of its own address to the port that the next server listens on.

ministack keys a queue by its address, port included, and looks for a function's queue under the port of today. Function
URLs stand with their port in what templates gave others. A state that comes up on another port (the old one is taken,
or the directory is a copy) would keep its queues where no function looks, and name function URLs that do not answer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_HOLDERS: Final = ("sqs.json", "cloudformation.json", "lambda.json", "ssm.json")
"""The queues; what a template's Ref and GetAtt gave; what they gave a function's environment, and a parameter."""


def move_to(port: int, *, services: Path, account_id: str) -> int:
    """Rewrite the addresses of a server that is not running.

    Args:
        port: Where the next server listens, on 127.0.0.1.
        services: ministack's STATE_DIR.
        account_id: Twelve digits, the first part of a queue's path.

    Returns:
        How many addresses had another port.
    """
    elsewhere = re.compile(rf"http://127\.0\.0\.1:(?!{port}/)\d+/({account_id}|_aws/lambda-url)/")
    moved = 0
    for name in _HOLDERS:
        path = services / name
        if not path.exists():
            continue
        text, found = elsewhere.subn(rf"http://127.0.0.1:{port}/\1/", path.read_text())
        if found:
            replacement = path.with_suffix(".moved")
            replacement.write_text(text)
            replacement.replace(path)
            moved += found
    return moved
