"""A loop around accelerate goes on with as many ranks, and with others, with DDP and with FSDP2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forking import said_of_kinds

pytest.importorskip("accelerate")

pytestmark = [pytest.mark.torch, pytest.mark.long]


KINDS = ("ddp", "fsdp")


@pytest.fixture(scope="module")
def said_on_other_ranks(tmp_path_factory):
    script = Path(__file__).with_name("accelerate_on_other_ranks.py")
    return said_of_kinds(script, tmp_path_factory.mktemp("other-ranks"), *KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_with_as_many_ranks_and_with_others(said_on_other_ranks, kind):
    """From two ranks to three and to one, with the saved state and the rows that are left."""
    said, errors = said_on_other_ranks
    lines = [line for line in said[kind] if line and not line.startswith("spotkeep-event")]
    assert lines == [f"{kind} is through"], errors[-3000:]
    assert "other settings" not in errors
