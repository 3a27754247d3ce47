"""Changes during a training that a restarted script would not make again.

They are in the form of its state and in tensors beside it.

A restarted script builds its first state. It lacks parameter groups, layers and shapes that came later, so a checkpoint
with them does not fit. A module's tensors outside of its `state_dict` also begin anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from . import arrays
from .encoding import Json, encode_state, encoded_pairs, objects_in, stateful_kind
from .state_dicts import is_module, is_optimizer, loads_in_its_own_way, numbers_beside, tensors_beside

_NAMED = 5
"""The number of changed entries that are named."""


class Beginning:
    """A state as it is when the training begins.

    Args:
        state: The live state.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        document = encode_state(dict(state), left_out=lambda value: not is_module(value)).document
        self._own_way = {path for path, value in objects_in(state) if is_module(value) and loads_in_its_own_way(value)}
        self._forms = self._forms_of(state, document)
        self._beside = [
            (f"{path}.{name}", read, _identity(read()))
            for path, value in objects_in(state)
            if is_module(value)
            for name, read in tensors_beside(value)
        ]

        self._numbers = [
            (f"{path}.{name}", attributes, key, attributes[key])
            for path, value in objects_in(state)
            if is_module(value)
            for name, attributes, key in numbers_beside(value)
        ]

    def changed_form(self, state: Mapping[str, Any], document: Json) -> list[str]:
        """Name the entries that have another form than at the beginning.

        Args:
            state: The live state.
            document: Its encoded form.
        """
        forms = self._forms_of(state, document)
        changes = []
        for path, before in self._forms.items():
            if path not in forms:
                changes.append(f"{path} is gone")
            elif forms[path] != before and before[0] != "object":  # An adapter's may become one of its framework's.
                changes.append(f"{path} {_change(before, forms[path])}")
        changes += [f"{path} is new" for path, form in forms.items() if path not in self._forms and form[0] != "array"]
        return changes

    def changed_beside(self) -> list[str]:
        """Name the tensors and numbers of modules, outside of any `state_dict`, that have changed."""
        changed = [name for name, read, before in self._beside if not _same(_identity(read()), before)]
        return changed + [name for name, now, key, before in self._numbers if now.get(key, before) != before == before]

    def _forms_of(self, state: Mapping[str, Any], document: Json) -> dict[str, Any]:
        return {path: form for path, form in _forms(state, document, "state") if path not in self._own_way}


def _forms(live: Any, node: Json, path: str) -> Iterator[tuple[str, Any]]:
    """Give each array and object of a live state with the properties that a restore needs alike."""
    if isinstance(live, dict) or (isinstance(live, Mapping) and path == "state"):
        for (key, value), (_, item) in zip(live.items(), encoded_pairs(node)):
            yield from _forms(value, item, f"{path}[{key!r}]")
    elif isinstance(live, list):
        for index, (value, item) in enumerate(zip(live, node)):
            yield from _forms(value, item, f"{path}[{index}]")
    elif arrays.is_numpy_array(live) or arrays.is_torch_tensor(live):
        yield path, ("array", str(live.dtype), tuple(live.shape))
    elif is_optimizer(live):
        yield path, ("parameter groups", [len(group["params"]) for group in live.param_groups])
    elif is_module(live):
        yield path, ("module", _shapes(node))
    elif stateful_kind(live) is not None:
        yield path, ("object",)


def _shapes(node: Json) -> list[tuple[Any, Any]]:
    body = node.get("state_dict") if isinstance(node, dict) else None
    return [
        (key, item["tensor"]["shape"] if isinstance(item, dict) and "tensor" in item else None)
        for key, item in (body or {}).get("items", ())
    ]


def _change(before: Any, now: Any) -> str:
    if before[0] != now[0]:
        return f"was {before[0]}, and is {now[0]}"
    if before[0] == "parameter groups":
        return f"had parameter groups of {before[1]} parameters, and has {now[1]}"
    if before[0] == "module":
        ours, theirs = ({str(name): shape for name, shape in form[1]} for form in (before, now))
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        return f"has other entries or shapes: {', '.join(names[:_NAMED])}"
    return f"was {before[1]} of shape {before[2]}, and is {now[1]} of shape {now[2]}"


def _identity(value: Any) -> Any:
    """Give a value that changes when a tensor, or a list of tensors, is changed or replaced."""
    if isinstance(value, list):
        return [_identity(item) for item in value]
    if not arrays.is_torch_tensor(value):
        return None
    return weakref.ref(value), 0 if value.is_inference() else value._version


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        # Two references to tensors that live are equal as the tensors are, element by element.
        return one[0] is other[0] and one[1] == other[1]
    return one is other
