"""The Python client on the models of the command line's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spotkeep_cli.seams import Seams
from spotkeep_client import Spotkeep
from tests.spotkeep_cli.conftest import NOW, FakeDeployment, deployment, make

__all__ = ["deployment", "make"]
RUN = "digits-1a2b3c4d"


@pytest.fixture
def meanwhile() -> list[Callable[[], object]]:
    """What happens while the client sleeps: the first at its first sleep, and so on."""
    return []


@pytest.fixture
def seams(deployment: FakeDeployment, meanwhile: list[Callable[[], object]]) -> Seams:
    def no_market(_options: Any) -> Any:
        raise AssertionError("the client plans nothing")

    return Seams(
        connect=lambda _options: deployment,
        spot_market=no_market,
        now=lambda: NOW,
        sleep=lambda _seconds: meanwhile.pop(0)() if meanwhile else None,
        new_token=lambda: "token",
    )


@pytest.fixture
def client(seams: Seams) -> Spotkeep:
    return Spotkeep(seams=seams)


@pytest.fixture
def accepting(deployment: FakeDeployment) -> FakeDeployment:
    """Validates and launches whatever it is given."""
    deployment.answers["validate"] = {"ok": True, "warnings": []}
    deployment.answers["launch"] = {"ok": True, "run": RUN, "job_name": f"{RUN}-1", "attempt": 1}
    return deployment
