"""The fakes of these tests take what the classes take that they stand for."""

from __future__ import annotations

import inspect

import pytest

from spotkeep_cli.aws.deployment import DeploymentClient
from spotkeep_cli.drill.on_aws import Drill
from tests.spotkeep_cli.conftest import FakeDeployment, FakeDrill


@pytest.mark.parametrize(
    ("fake", "real"),
    [
        (FakeDeployment, DeploymentClient),
        (FakeDrill, Drill),
    ],
)
def test_a_fake_takes_what_the_real_one_takes(fake: type, real: type) -> None:
    methods = {name: method for name, method in vars(fake).items() if inspect.isfunction(method) and name[0] != "_"}
    assert methods
    for name in methods:
        taken, wanted = (list(inspect.signature(method).parameters) for method in (methods[name], getattr(real, name)))
        assert taken == wanted, f"{fake.__name__}.{name}"
