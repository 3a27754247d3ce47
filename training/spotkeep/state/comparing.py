"""Compares an encoded live state with a saved one in structure, types, orders in memory and plain values. Pure.

`disk/chunked_files.py` compares the bytes of arrays, because it knows the files. This module finds the pairs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from .encoding import LEFT_OUT, Json

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
        saved: Their description in the checkpoint, with `file`, `offset` and `size`.
        live: Their description in the live state.
    """

    path: str
    saved: dict[str, Json]
    live: dict[str, Json]


def compare(saved: Json, live: Json, path: str = "state") -> tuple[list[Difference], list[SameForm]]:
    """Compare two state documents. Where the bytes lie does not count.

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
        same_place = ("file", "offset")
        if _same_text(
            *({name: body[name] for name in sorted(body) if name not in same_place} for body in (saved, live))
        ):
            if saved["size"]:
                self.same_form.append(SameForm(path, saved, live))
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
