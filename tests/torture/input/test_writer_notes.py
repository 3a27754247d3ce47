"""A note of a run's writers, which lies in a shared folder or bucket, is read or refused."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spotkeep.disk.writers import Token, Writers

from .bounds import bounded, fed_by_strangers
from .mutations import NUMBERS, as_json, mutated

NOTE = json.loads(Writers({Token(1, 0, 1): None, Token(1, 0, 2): 250, Token(12, 3, 1): 10**12}).to_bytes())


@fed_by_strangers()
@given(document=mutated(NOTE), number=NUMBERS, junk=st.binary(max_size=400), is_junk=st.booleans())
def test_a_note_is_read_or_refused_in_words(document: Any, number: str, junk: bytes, is_junk: bool) -> None:
    raw = junk if is_junk else as_json(document, number=number).encode("utf-8", "surrogatepass")
    problem = None
    with bounded():
        try:
            found = Writers.parse(raw)
        except ValueError as error:
            problem = str(error)
    if problem is None:
        assert found.to_bytes() == raw
    else:
        assert 0 < len(problem) < 500
