"""Whether the processes that are started here keep the byte code that they compile."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def keeping_byte_code(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the same environment, in which Python keeps the byte code that it compiles.

    Images with Python often forbid it. Each start then compiles ministack, boto3 or the CDK again: seconds of work.
    """
    return {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
