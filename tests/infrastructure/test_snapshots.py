"""Every stack as a whole: a change of a template is seen in review."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from syrupy.extensions.json import JSONSnapshotExtension

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from .conftest import Templates


def without_hashes(template: dict[str, Any]) -> Any:
    """A template whose asset hashes say nothing: what is inside an archive has tests of its own."""
    return json.loads(re.sub(r"\b[0-9a-f]{64}\b", "asset-hash", json.dumps(template)))


@pytest.mark.parametrize("stack_name", ["Storage", "Compute", "Jobs", "Events"])
def test_stack(templates: Templates, stack_name: str, snapshot: SnapshotAssertion) -> None:
    shape = without_hashes(templates.by_stack[stack_name])
    assert shape == snapshot(name=stack_name, extension_class=JSONSnapshotExtension)
