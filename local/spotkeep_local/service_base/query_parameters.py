"""The parameters of AWS's two query protocols, with dotted names in a form, and lists and structures in the model.

`TagSpecification.1.Tag.2.Key=a` is read into `{"TagSpecifications": [{"Tags": [..., {"Key": "a"}]}]}`. EC2 numbers the
items of a list right behind its name. The other services put `member` or the items' own name between, and write maps as
numbered entries.

Sources: botocore's `EC2Serializer` and `QuerySerializer`, the counterparts of this module.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import Shape

    from spotkeep_local.service_base.aws_service import HttpRequest


class UnreadableParameterError(Exception):
    """A value is not of the type that the model says."""


@dataclass
class _Node:
    """The text that the form holds at a name, and the nodes below it."""

    name: str = ""
    text: str | None = None
    below: dict[str, _Node] = field(default_factory=dict)


def form_parameters(request: HttpRequest) -> dict[str, str]:
    """Return the parameters in a request's body and address."""
    given = {name: values[0] for name, values in request.query.items() if values}
    given.update(parse_qsl(request.body.decode("utf-8", errors="replace"), keep_blank_values=True))
    return given


def read_query_parameters(shape: Shape, form: Mapping[str, str], *, ec2: bool) -> tuple[dict[str, Any], set[str]]:
    """Read a form.

    Args:
        shape: The operation's input.
        form: Without `Action` and `Version`.
        ec2: The protocol is EC2's own.

    Returns:
        The parameters as a client takes them, and the names of the form that the model does not know. Timestamps and
        binary values stay text.

    Raises:
        UnreadableParameterError: A value is not of its type.
    """
    root = _Node()
    for name, text in form.items():
        node = root
        for part in name.split("."):
            node = node.below.setdefault(part, _Node())
        node.name, node.text = name, text
    reader = _ParameterReader(ec2=ec2, unread=set(form))
    return reader.read(shape, root) or {}, reader.unread


@dataclass
class _ParameterReader:
    """Reads one form.

    Attributes:
        ec2: The protocol is EC2's own.
        unread: The names in the form that nothing was read from yet.
    """

    ec2: bool
    unread: set[str]

    def read(self, shape: Shape, node: _Node) -> Any:
        kind = shape.type_name
        if kind == "structure":
            members = _members(shape, ec2=self.ec2)
            known = ((*members[part], below) for part, below in node.below.items() if part in members)
            values = {name: self.read(member, below) for name, member, below in known}
            return {name: value for name, value in values.items() if value is not None} or self._empty(node, {})
        if kind == "list":
            items = node if self.ec2 or _is_flattened(shape) else _below(node, _item_name(shape))
            read = (self.read(shape.member, item) for item in _numbered(items))  # type: ignore[attr-defined]
            return [value for value in read if value is not None] or self._empty(node, [])
        if kind == "map":
            entries = _numbered(node if _is_flattened(shape) else _below(node, "entry"))
            return dict(self._entry(shape, entry) for entry in entries) or self._empty(node, {})
        if node.text is None:
            return None
        self.unread.discard(node.name)
        return read_scalar(node.text, shape, node.name)

    def _entry(self, shape: Shape, node: _Node) -> tuple[str, Any]:
        key, value = shape.key, shape.value  # type: ignore[attr-defined]
        return (
            str(self.read(key, _below(node, key.serialization.get("name", "key")))),
            self.read(value, _below(node, value.serialization.get("name", "value"))),
        )

    def _empty(self, node: _Node, value: Any) -> Any:
        # A client writes an empty list as the list's own name with an empty value.
        if node.text != "":
            return None
        self.unread.discard(node.name)
        return value


def _below(node: _Node, part: str) -> _Node:
    return node.below.get(part) or _Node()


def _numbered(node: _Node) -> list[_Node]:
    items: list[_Node] = []
    while (item := node.below.get(str(len(items) + 1))) is not None:
        items.append(item)
    return items


@functools.cache
def _members(shape: Shape, *, ec2: bool) -> Mapping[str, tuple[str, Shape]]:
    """Return the members of a structure by the names in the form."""
    members = shape.members.items()  # type: ignore[attr-defined]
    return {(_ec2_name if ec2 else _query_name)(member, name): (name, member) for name, member in members}


def _ec2_name(shape: Shape, default: str) -> str:
    serialization = shape.serialization
    if "queryName" in serialization:
        return str(serialization["queryName"])
    if "name" in serialization:
        name = str(serialization["name"])
        return name[0].upper() + name[1:]
    return default


def _query_name(shape: Shape, default: str) -> str:
    if shape.type_name == "list" and _is_flattened(shape):
        # The items' own name stands in the place of the list's.
        default = str(shape.member.serialization.get("name", default))  # type: ignore[attr-defined]
    return str(shape.serialization.get("name", default))


def _item_name(shape: Shape) -> str:
    return str(shape.member.serialization.get("name", "member"))  # type: ignore[attr-defined]


def _is_flattened(shape: Shape) -> bool:
    return bool(shape.serialization.get("flattened"))


def read_scalar(text: str, shape: Shape, name: str) -> Any:
    """Read a value that is written as text. Timestamps and binary values stay text.

    Args:
        text: The value as it was sent.
        shape: The value's shape in the model.
        name: The parameter's name, for the error.

    Raises:
        UnreadableParameterError: It is not of its type.
    """
    try:
        if shape.type_name == "boolean":
            return {"true": True, "false": False}[text.lower()]
        if shape.type_name in ("integer", "long"):
            return int(text)
        if shape.type_name in ("float", "double"):
            return float(text)
    except (KeyError, ValueError) as error:
        raise UnreadableParameterError(
            f"Value ({text}) for parameter {name} is invalid. It must be a {shape.type_name}."
        ) from error
    return text
