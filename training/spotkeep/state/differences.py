"""Differences between the states of two ranks, as documents. Pure.

Several ranks write their common state once, and each rank beside it its differences from rank 0. A document is compared
as a tree. The value at a key of a dictionary is compared by itself. Any other node (an array, a number, a list) is
compared by one digest. Differences are a tree, too:

| node | meaning |
|---|---|
| `{"own": document}` | this stands here instead of the other's |
| `{"changed": [[key, node], ...], "removed": [key, ...]}` | the other's dictionary, but for these keys |

The second has `"beside"`, too, where a `state_dict` carries data beside its items.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Callable, Optional

from . import arrays
from .encoding import Blob, BlobPlaces, Json

Differences = Optional[Json]

_LONGEST_TEXT = 64


def digest_tree(document: Json, digest_of: Callable[[Json], str]) -> Json:
    """Give a state document as a tree of digests, with pairs for a dictionary and a text for any other value.

    Args:
        document: The state document.
        digest_of: Gives the digest of the bytes that a description of an array refers to.
    """
    pairs = _pairs_of(document)
    if pairs is not None:
        items = [[key, digest_tree(value, digest_of)] for key, value in pairs]
        return items if "dict" in document else {"items": items, "beside": _beside(document)}
    if isinstance(document, dict) and len(document) == 1:
        ((kind, body),) = document.items()
        if isinstance(body, dict) and "file" in body:
            # Most of a state are arrays.
            form = " ".join(f"{name}={value}" for name, value in body.items() if name not in ("file", "offset"))
            return f"{digest_of(body)} {kind} {form}"
    digests: list[str] = []

    def described(place: Json) -> Json:
        digests.append(digest_of(place))
        return {name: value for name, value in place.items() if name not in ("file", "offset")}

    text = json.dumps(_each_place(document, described))
    text = text if not digests else " ".join([text, *digests])
    return text if len(text) <= _LONGEST_TEXT else hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()


def differences(document: Json, tree: Json, other: Json) -> Differences:
    """Give the differences of a state from another one. None without a difference.

    Args:
        document: The state document.
        tree: Its digests.
        other: The digests of the other state.
    """
    if tree == other:
        return None
    if type(tree) is not type(other) or isinstance(tree, str):
        return {"own": document}
    beside = {}
    if isinstance(tree, dict):
        beside = {"beside": tree["beside"]} if tree["beside"] != other["beside"] else {}
        tree, other = tree["items"], other["items"]
    values, trees, others = dict(_pairs_of(document) or ()), dict(tree), dict(other)
    kept = [key for key in others if key in trees]
    # In the order of the other one, in which they are read.
    changed = [[key, differences(values[key], trees.pop(key), others[key])] for key in kept]
    changed = [[key, found] for key, found in changed if found is not None]
    changed += [[key, {"own": values[key]}] for key in trees]
    removed = [key for key in others if key not in values]
    return {"changed": changed, "removed": removed, **beside} if changed or removed or beside else None


def with_differences(document: Json, found: Differences) -> Json:
    """Give a state document from the other's document and the differences."""
    if found is None:
        return document
    if "own" in found:
        return found["own"]
    changed, removed = dict(found["changed"]), found["removed"]
    pairs = [
        [key, with_differences(value, changed.pop(key, None))]
        for key, value in _pairs_of(document) or ()
        if key not in removed
    ]
    pairs += [[key, with_differences(None, node)] for key, node in changed.items()]
    if isinstance(document, dict) and "state_dict" in document:
        return {"state_dict": {"items": pairs, **found.get("beside", _beside(document))}}
    return {"dict": pairs}


def own_document(found: Differences) -> Json:
    """Give the differences alone as a state document."""
    if found is None:
        return {"dict": []}
    return found["own"] if "own" in found else {"dict": [[key, own_document(node)] for key, node in found["changed"]]}


def own_paths(found: Differences, path: str = "state") -> list[str]:
    """Name the entries that differ."""
    if found is None:
        return []
    if "own" in found:
        return [path]
    others = [f"{path}[{key!r}]" for key in found["removed"]]
    others += [f"the flags of {path}"] if "beside" in found else []
    return [name for key, node in found["changed"] for name in own_paths(node, f"{path}[{key!r}]")] + others


def are_differences(found: Any) -> bool:
    """Say whether something has the form of differences."""
    if not isinstance(found, dict):
        return False
    if set(found) == {"own"}:
        return True
    changed, removed = found.get("changed"), found.get("removed")
    return (
        set(found) - {"beside"} == {"changed", "removed"}
        and isinstance(found.get("beside", {}), dict)
        and isinstance(removed, list)
        and isinstance(changed, list)
        and all(map(_is_plain_key, removed))
        and _are_pairs(changed)
        and all(are_differences(node) for _, node in changed)
    )


def apart(found: Differences, blobs: Sequence[Blob]) -> tuple[Differences, tuple[Blob, ...]]:
    """Give differences with files of their own, numbered from 0, and the bytes that belong there.

    Args:
        found: Refers to places among `blobs`.
        blobs: Those of the whole state.
    """
    raws = {(blob.file_index, blob.offset): blob.raw for blob in blobs}
    places = BlobPlaces()

    def move(place: Json) -> Json:
        raw: arrays.Buffer | arrays.DeviceBytes = raws[place["file"], place["offset"]] if place["size"] else b""
        return {**place, **places.place(raw)}

    return _each_place(found, move), tuple(places.blobs)


def own_places(found: Differences) -> set[tuple[int, int]]:
    """Give the places of the bytes that differences refer to, as file numbers and offsets."""
    places: set[tuple[int, int]] = set()

    def note(place: Json) -> Json:
        places.add((place["file"], place["offset"]))
        return place

    _each_place(found, note)
    return places


def _pairs_of(document: Json) -> list[Json] | None:
    """Give the keys and values of a dictionary or a `state_dict`. None for any other value."""
    if not isinstance(document, dict):
        return None
    body = document.get("state_dict")
    pairs = body.get("items") if isinstance(body, dict) else document.get("dict")
    return pairs if _are_pairs(pairs) else None


def _beside(document: Json) -> Json:
    return {name: value for name, value in document["state_dict"].items() if name != "items"}


def _are_pairs(found: Any) -> bool:
    """Say whether these are pairs with keys that stand for themselves. Bytes and tuples do not."""
    pairs = isinstance(found, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in found)
    return pairs and all(_is_plain_key(key) for key, _ in found)


def _is_plain_key(key: Json) -> bool:
    return key is None or isinstance(key, (str, int, float))


def _each_place(document: Json, change: Callable[[Json], Json]) -> Json:
    """Give a document with each description of bytes changed."""
    if isinstance(document, list):
        return [_each_place(item, change) for item in document]
    if not isinstance(document, dict):
        return document
    if "file" in document:
        return change(document)
    return {kind: _each_place(body, change) for kind, body in document.items()}
