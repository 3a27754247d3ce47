"""The fakes of these tests take what the classes take that they stand for."""

from __future__ import annotations

import inspect

import pytest

from spotkeep_cli.aws.deployment import DeploymentClient
from spotkeep_cli.aws.job_log import AttemptLog
from spotkeep_cli.aws.stored_objects import StoredObjects
from spotkeep_cli.drill.on_aws import Drill
from spotkeep_planner.history.spot_market import SpotMarket
from tests.spotkeep_cli.conftest import FakeDeployment, FakeDrill, FakeLog, FakeMarket, FakeObjects


@pytest.mark.parametrize(
    ("fake", "real"),
    [
        (FakeDeployment, DeploymentClient),
        (FakeMarket, SpotMarket),
        (FakeObjects, StoredObjects),
        (FakeLog, AttemptLog),
        (FakeDrill, Drill),
    ],
)
def test_a_fake_takes_what_the_real_one_takes(fake: type, real: type) -> None:
    methods = {name: method for name, method in vars(fake).items() if inspect.isfunction(method) and name[0] != "_"}
    assert methods
    for name in methods:
        taken, wanted = (list(inspect.signature(method).parameters) for method in (methods[name], getattr(real, name)))
        assert taken == wanted, f"{fake.__name__}.{name}"
