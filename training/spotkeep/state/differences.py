"""Differences between two states as documents, of two ranks, or of a live state and a saved one. Pure.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

from . import arrays
from .encoding import LEFT_OUT, Blob, BlobPlaces, Json, is_place

Differences = Optional[Json]

_LONGEST_TEXT = 64
_PLACE = ("stream", "offset", "size", "divided")


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
        if isinstance(body, dict) and is_place(body):
            # Most of a state are arrays.
            form = " ".join(f"{name}={value}" for name, value in body.items() if name not in _PLACE)
            form += f" size={body['size']}"
            return f"{digest_of(body)} {kind} {form}"
    digests: list[str] = []

    def described(place: Json) -> Json:
        digests.append(digest_of(place))
        return {name: value for name, value in place.items() if name not in ("stream", "offset")}

    text = json.dumps(each_place(document, described))
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


def without_divided(document: Json) -> Json:
    """Give a document with None in the place of each divided array."""
    if isinstance(document, list):
        return [without_divided(item) for item in document]
    if not isinstance(document, dict):
        return document
    if any(isinstance(body, dict) and "divided" in body for body in document.values()):
        return None
    return {kind: without_divided(body) for kind, body in document.items()}


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


def moved(document: Json, blobs: Sequence[Blob], places: BlobPlaces) -> Json:
    """Give a document, or differences, with new places for its bytes.

    Args:
        document: Refers to places among `blobs`.
        blobs: Those of a whole state, in stream 0.
        places: Gives the new places.
    """
    raws = {blob.offset: blob.raw for blob in blobs}

    def move(place: Json) -> Json:
        raw: arrays.Buffer | arrays.DeviceBytes = raws[place["offset"]] if place["size"] else b""
        return {**place, **places.place(raw)}

    return each_place(document, move)


def with_places(document: Json, moved_to: Mapping[int, Json]) -> Json:
    """Give a document with the places in `moved_to` for those with these offsets. Empty values keep theirs."""
    return each_place(document, lambda place: {**place, **moved_to[place["offset"]]} if place["size"] else place)


def layout_digest(document: Json) -> str:
    """Give a digest of the paths and sizes of all bytes in a document. Plain values do not count."""
    digest = hashlib.blake2b(digest_size=16)
    for path, node in arrays_in(document):
        digest.update(f"{path} {node.get('size')}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def divided_paths(document: Json) -> dict[int, str]:
    """Name the divided arrays of a document, by their numbers."""
    return {node["divided"]: path for path, node in arrays_in(document) if "divided" in node}


def arrays_in(node: Json, path: str = "state") -> Iterator[tuple[str, Json]]:
    """Find the descriptions of arrays and bytes in a document, with their paths."""
    pairs = _pairs_of(node)
    if pairs is not None:
        for key, item in pairs:
            yield from arrays_in(item, f"{path}[{key!r}]")
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from arrays_in(item, f"{path}[{index}]")
    elif isinstance(node, dict):
        if is_place(node) or "divided" in node:
            yield path, node
        else:
            for body in node.values():
                yield from arrays_in(body, path)


def own_places(found: Differences) -> set[int]:
    """Give the offsets of the bytes that differences refer to."""
    places: set[int] = set()

    def note(place: Json) -> Json:
        if place["size"]:
            places.add(place["offset"])
        return place

    each_place(found, note)
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


def each_place(document: Json, change: Callable[[Json], Json]) -> Json:
    """Give a document with each description of bytes changed."""
    if isinstance(document, list):
        return [each_place(item, change) for item in document]
    if not isinstance(document, dict):
        return document
    if is_place(document):
        return change(document)
    return {kind: each_place(body, change) for kind, body in document.items()}


_WITH_BYTES = ("tensor", "ndarray", "scalar", "bytes", "bytearray")
_MAPPINGS = ("dict", "counter", "state_dict")


@dataclass(frozen=True)
class Difference:
    """One entry that differs from the saved one.

    Attributes:
        path: Its place, for example `state['model']['weight']`.
        problem: The saved value and the live one, in words.
        of_array: It is an array or tensor, in the checkpoint or here.
        added: The checkpoint has nothing there.
    """

    path: str
    problem: str
    of_array: bool = False
    added: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(frozen=True)
class SameForm:
    """Bytes that should be equal.

    Attributes:
        path: Their path in the state.
        kind: The kind of the value, such as `tensor`.
        saved: Their description in the checkpoint, with `stream` where it is not 0, `offset` and `size`, or the number
            of a divided array.
        live: Their description in the live state.
    """

    path: str
    kind: str
    saved: dict[str, Json]
    live: dict[str, Json]


def compare(saved: Json, live: Json, path: str = "state") -> tuple[list[Difference], list[SameForm]]:
    """Compare an encoded live state with a saved one in structure, types, orders in memory and plain values.

    The place of the bytes does not count, nor their division among ranks. `disk/chunked_files.py` compares the bytes of
    arrays, because it knows the files. This function finds the pairs.

    Returns:
        The differences, and which bytes are still to be compared.
    """
    comparison = _Comparison()
    comparison.compare(saved, live, path)
    return comparison.differences, comparison.same_form


class _Comparison:
    def __init__(self) -> None:
        self.differences: list[Difference] = []
        self.same_form: list[SameForm] = []

    def compare(self, saved: Json, live: Json, path: str) -> None:
        if live == LEFT_OUT:
            return
        kind, body = _kind(saved)
        live_kind, live_body = _kind(live)
        if kind in _MAPPINGS and live_kind in _MAPPINGS and (kind == live_kind or "state_dict" in (kind, live_kind)):
            self._mappings(body, live_body, path)
        elif kind != live_kind:
            self._differ(path, f"{_what(kind, body)} was saved, {_what(live_kind, live_body)} is there", saved, live)
        elif kind in _WITH_BYTES:
            self._arrays(kind, body, live_body, path)
        elif kind in ("list", "tuple"):
            self._sequences(body, live_body, path)
        elif not _same_text(body, live_body):
            self._differ(path, f"{_shown(body)} was saved, {_shown(live_body)} is there", saved, live)

    def _mappings(self, saved: Json, live: Json, path: str) -> None:
        ours, theirs = ({json.dumps(key): (key, value) for key, value in _pairs(body)} for body in (saved, live))
        if ours and not theirs:
            # Of an object: it may keep what it got for something that is not there yet.
            self.differences.append(Difference(path, f"{len(ours)} entries were saved, and it gives none"))
            return
        for text, (key, value) in ours.items():
            inside = f"{path}[{_key(key)}]"
            if text in theirs:
                self.compare(value, theirs[text][1], inside)
            else:
                self._differ(inside, "it was saved, and is not there", value, None)
        for text, (key, value) in theirs.items():
            if text not in ours:
                self.differences.append(
                    Difference(f"{path}[{_key(key)}]", "it was not saved", of_array=_holds_bytes(value), added=True)
                )
        for name, what in (("frozen", "requires_grad"), ("evaluating", "its mode (train or eval)")):
            one, other = (body.get(name) if isinstance(body, dict) else None for body in (saved, live))
            if one is not None and other is not None:
                for changed in sorted({*one} ^ {*other}):
                    self._differ(f"{path}.{changed}" if changed else path, f"{what} is not what was saved", None, None)

    def _arrays(self, kind: str, saved: Json, live: Json, path: str) -> None:
        forms = ({name: body[name] for name in sorted(body) if name not in _PLACE} for body in (saved, live))
        # A divided array has no size of its own. Its type and shape say it.
        sizes = {body["size"] for body in (saved, live) if "size" in body}
        if _same_text(*forms) and len(sizes) < 2:
            if sizes != {0}:
                self.same_form.append(SameForm(path, kind, saved, live))
            return
        one, other = _what(kind, saved), _what(kind, live)
        for name, what in (("order", "the order in memory"), ("requires_grad", "requires_grad")):
            if one == other and saved.get(name) != live.get(name):
                one, other = (f"{what} {body.get(name)}" for body in (saved, live))
        self.differences.append(Difference(path, f"{one} was saved, {other} is there", of_array=True))

    def _sequences(self, saved: Json, live: Json, path: str) -> None:
        if len(saved) != len(live):
            self._differ(path, f"{len(saved)} items were saved, {len(live)} are there", saved, live)
            return
        for index, (one, other) in enumerate(zip(saved, live)):
            self.compare(one, other, f"{path}[{index}]")

    def _differ(self, path: str, problem: str, saved: Json, live: Json) -> None:
        of_array = _holds_bytes(saved) or _holds_bytes(live)
        self.differences.append(Difference(path, problem, of_array=of_array))


def _kind(node: Json) -> tuple[str, Json]:
    if isinstance(node, list):
        return "list", node
    if isinstance(node, dict):
        return next(iter(node.items()))
    return "value", node


def _pairs(body: Json) -> Json:
    return body.get("items", []) if isinstance(body, dict) else body


def _holds_bytes(node: Json) -> bool:
    if isinstance(node, list):
        return any(map(_holds_bytes, node))
    if not isinstance(node, dict):
        return False
    return any(kind in _WITH_BYTES or _holds_bytes(body) for kind, body in node.items())


def _what(kind: str, body: Json) -> str:
    if kind in ("tensor", "ndarray", "scalar"):
        return f"{body['dtype']} of shape {tuple(body['shape'])}"
    if kind == "value":
        return _shown(body)
    return f"{body['size']} bytes" if kind in _WITH_BYTES else f"a {kind}"


def _same_text(one: Json, other: Json) -> bool:
    # 1 is not 1.0, nor is it True, and 0.0 is not -0.0.
    return json.dumps(one) == json.dumps(other)


def _shown(body: Json) -> str:
    text = json.dumps(body)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _key(node: Json) -> str:
    return repr(node) if isinstance(node, (str, int)) else json.dumps(node)
