"""The Python client on the models of the command line's tests."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_cli.seams import Seams
from spotkeep_client import Spotkeep
from tests.spotkeep_cli.conftest import NOW, FakeDeployment, deployment, make

__all__ = ["deployment", "make"]


@pytest.fixture
def client(deployment: FakeDeployment) -> Spotkeep:
    def no_market(_options: Any) -> Any:
        raise AssertionError("the client plans nothing")

    return Spotkeep(
        seams=Seams(
            connect=lambda _options: deployment,
            spot_market=no_market,
            now=lambda: NOW,
            sleep=lambda _seconds: None,
            new_token=lambda: "token",
        )
    )
