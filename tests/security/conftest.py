"""What the attacks on permissions are judged on: the deployment that cdk.json describes, and one with every setting."""

from __future__ import annotations

import pytest

from tests.infrastructure.conftest import MakeOnce, templates_of

from .policies import Policies


@pytest.fixture(scope="session")
def policies(made_once: MakeOnce) -> Policies:
    """The policies of a deployment as cdk.json describes it."""
    return Policies(templates_of(made_once, "default"))


@pytest.fixture(scope="session")
def policies_with_everything(made_once: MakeOnce) -> Policies:
    """The policies of a deployment with every setting that adds or changes resources."""
    return Policies(templates_of(made_once, "everything"))
