"""What the attacks on permissions are judged on: the deployment that cdk.json describes, and one with every setting."""

from __future__ import annotations

import pytest

from tests.infrastructure.conftest import SharedDirectory, templates_of

from .policies import Policies


@pytest.fixture(scope="session")
def policies(shared_directory: SharedDirectory) -> Policies:
    """The policies of a deployment as cdk.json describes it."""
    return Policies(templates_of(shared_directory, "default"))


@pytest.fixture(scope="session")
def policies_with_everything(shared_directory: SharedDirectory) -> Policies:
    """The policies of a deployment with every setting that adds or changes resources."""
    return Policies(templates_of(shared_directory, "everything"))
