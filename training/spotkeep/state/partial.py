"""The part of a saved state that a live state has a place for. Pure.

A script may want only the model of a checkpoint, or a model that has gained or lost layers since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .encoding import Json, encode_state
from .state_dicts import StateDict, is_module, module_state


def fitting_part(document: Json, state: Mapping[str, Any]) -> tuple[Json, list[str]]:
    """Leave out of a state document all that a live state has no place for.

    An entry fits when the live state has its name. An item of a module fits when the module has an item of that name,
    dtype and shape. The frozen parameters and the modes of a module stay as they are.

    Args:
        document: The saved state.
        state: The live state, as names and objects.

    Returns:
        The document of the fitting part, and the paths that were left out, on either side.
    """
    saved = dict(_named(document.get("dict") if isinstance(document, dict) else None))
    left_out = [f"state[{name!r}] of the checkpoint" for name in saved if name not in state]
    left_out += [f"state[{name!r}] of the script" for name in state if name not in saved]
    pairs = []
    for name, node in saved.items():
        if name in state:
            value = state[name]
            if is_module(value) and isinstance(node, dict) and isinstance(node.get("state_dict"), dict):
                node = _items_that_fit(node["state_dict"], value, f"state[{name!r}]", left_out)
            pairs.append([name, node])
    return {"dict": pairs}, left_out


def with_own_items(restored: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Give the modules of a restored state the items that the checkpoint lacks, from the live modules.

    Args:
        restored: The values of a document that `fitting_part` gave.
        state: The live state.
    """
    whole = dict(restored)
    for name, value in restored.items():
        if isinstance(value, StateDict) and is_module(state.get(name)):
            for key, item in module_state(state[name]).items():
                value.setdefault(key, item)
    return whole


def _items_that_fit(body: Json, module: Any, path: str, left_out: list[str]) -> Json:
    ((_, live),) = encode_state({"module": module}).document["dict"]
    own = {key: _form(node) for key, node in live["state_dict"]["items"]}
    saved = list(_named(body.get("items")))
    items = [[key, node] for key, node in saved if own.get(key, "") == _form(node)]
    fitting = {key for key, _ in items}
    left_out += [f"{path}[{key!r}] of the checkpoint" for key, _ in saved if key not in fitting]
    left_out += [f"{path}[{key!r}] of the script" for key in own if key not in fitting]
    return {"state_dict": {"items": items, **({"metadata": body["metadata"]} if "metadata" in body else {})}}


def _form(node: Json) -> Json:
    if isinstance(node, dict) and len(node) == 1:
        ((kind, body),) = node.items()
        if isinstance(body, dict) and "dtype" in body:
            return [kind, body["dtype"], body.get("shape")]
        return [kind]
    return [type(node).__name__]


def _named(pairs: Json) -> Iterator[tuple[str, Json]]:
    """Give the pairs whose key is a name. A document may be hostile."""
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str):
            yield pair[0], pair[1]
