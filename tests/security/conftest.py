"""What the attacks on permissions are judged on: the deployment that cdk.json describes, and one with every setting."""

from __future__ import annotations

import pytest

from tests.infrastructure.conftest import EVERYTHING_SET, context_of_checkout, synthesize

from .policies import Policies


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Policies:
    """The policies of a deployment as cdk.json describes it."""
    return Policies(synthesize(tmp_path_factory.mktemp("default"), context_of_checkout()["spotkeep"]))


@pytest.fixture(scope="session")
def policies_with_everything(tmp_path_factory: pytest.TempPathFactory) -> Policies:
    """The policies of a deployment with every setting that adds or changes resources."""
    return Policies(synthesize(tmp_path_factory.mktemp("everything"), EVERYTHING_SET))
