"""The Python client on the models of the command line's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spotkeep_cli.seams import Seams
from spotkeep_client import Spotkeep
from tests.spotkeep_cli.conftest import NOW, FakeDeployment, deployment, make

__all__ = ["deployment", "make"]


@pytest.fixture
def meanwhile() -> list[Callable[[], object]]:
    """What happens while the client sleeps: the first at its first sleep, and so on."""
    return []


@pytest.fixture
def client(deployment: FakeDeployment, meanwhile: list[Callable[[], object]]) -> Spotkeep:
    def no_market(_options: Any) -> Any:
        raise AssertionError("the client plans nothing")

    return Spotkeep(
        seams=Seams(
            connect=lambda _options: deployment,
            spot_market=no_market,
            now=lambda: NOW,
            sleep=lambda _seconds: meanwhile.pop(0)() if meanwhile else None,
            new_token=lambda: "token",
        )
    )
