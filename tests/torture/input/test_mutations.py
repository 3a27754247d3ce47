"""What changes documents leaves what it was given as it was, and makes nothing but JSON."""

from __future__ import annotations

import json

from .mutations import as_json, changed


def test_one_list_in_two_places_is_two_lists() -> None:
    drawn = {"dict": []}
    document = {"kind": 1, "id": 2}
    assert changed(document, [(("kind",), drawn), (("kind", "dict"), drawn)]) == {
        "kind": {"dict": {"dict": []}},
        "id": 2,
    }
    assert json.loads(json.dumps(document)) == {"kind": 1, "id": 2}
    assert drawn == {"dict": []}


def test_a_number_that_json_does_not_write_stands_for_a_value_never_for_a_name() -> None:
    assert as_json({"@": ["@", 'a "@" b']}, number="1e999") == '{"@": [1e999, "a \\"@\\" b"]}'
