"""A cloud for one test, and what the launcher writes into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spotkeep_fleet.record import opened

from .cloud import RUN, Cloud
from .jobs import job


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.close()


@pytest.fixture
def launch(cloud: Cloud) -> Callable[..., None]:
    def launch(**changes: Any) -> None:
        cloud.open(opened(run=RUN), job=job(**changes))

    return launch
