"""Each stack in outline: what appears or goes, what may do more, and what would be replaced, is seen in review."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from syrupy.extensions.json import JSONSnapshotExtension

from .outline import outline

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from .conftest import Templates


@pytest.mark.parametrize("stack_name", ["Storage", "Compute", "Jobs", "Events"])
def test_stack(templates: Templates, stack_name: str, snapshot: SnapshotAssertion) -> None:
    assert outline(templates.by_stack[stack_name]) == snapshot(name=stack_name, extension_class=JSONSnapshotExtension)
