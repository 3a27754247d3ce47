"""Requests and answers held against botocore's models of the services."""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from botocore.utils import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from botocore.model import OperationModel, Shape

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float, str),
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
}


_JSON_PROTOCOLS: Final = ("json", "rest-json")
_XML_PROTOCOLS: Final = ("ec2", "query", "rest-xml")
_JSON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "string": (str,),
    "character": (str,),
    "blob": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float, str),
}
_TEXTS: Final[Mapping[str, re.Pattern[str]]] = {
    "boolean": re.compile(r"true|false"),
    "integer": re.compile(r"-?\d+"),
    "long": re.compile(r"-?\d+"),
    "float": re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?|NaN|-?Infinity"),
    "double": re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?|NaN|-?Infinity"),
}
_TIMESTAMPS: Final[Mapping[str, re.Pattern[str]]] = {
    "iso8601": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"),
    "rfc822": re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"),
}
_BEFORE_THE_NAME: Final = re.compile(r"^\{[^}]*\}")
_NOT_BY_THE_MODEL: Final = frozenset({("s3", "GetBucketLocation")})
"""Operations with an answer that the model describes wrongly. In the model a bucket's region is a member of the answer.

In "GetBucketLocation" (S3's API reference) it is the answer's root."""


class WrongTypeError(Exception):
    """A value has another type than the model says."""


def check(value: Any, shape: Shape) -> tuple[Any, list[str]]:
    """Compare a value with its shape.

    Returns:
        The value without members that are None and with timestamps as epoch seconds, and every constraint it breaks.

    Raises:
        WrongTypeError: A value has another type than the model says.
    """
    problems: list[str] = []
    return _checked(value, shape, "", problems), problems


def _checked(value: Any, shape: Shape, path: str, problems: list[str]) -> Any:
    if not _has_type(value, shape):
        raise WrongTypeError(f"{path or 'The request'} must be a {shape.type_name}, found {value!r}")
    _check_constraints(value, shape, path, problems)
    if shape.type_name == "structure":
        members = shape.members  # type: ignore[attr-defined]
        problems.extend(
            f"Value null at '{_member(path, name)}' failed to satisfy constraint: Member must not be null"
            for name in shape.required_members
            if value.get(name) is None
        )
        problems.extend(
            f"'{_member(path, name)}' is not a parameter of this version of the API"
            for name in value
            if name not in members
        )
        return {
            name: _checked(item, members[name], _member(path, name), problems)
            for name, item in value.items()
            if item is not None and name in members
        }
    if shape.type_name == "map":
        key_shape, value_shape = shape.key, shape.value  # type: ignore[attr-defined]
        return {
            _checked(key, key_shape, f"{path} key", problems): _checked(item, value_shape, f"{path}.{key}", problems)
            for key, item in value.items()
        }
    if shape.type_name == "list":
        member_shape = shape.member  # type: ignore[attr-defined]
        return [
            _checked(item, member_shape, f"{path}.{number}.member", problems)
            for number, item in enumerate(value, start=1)
        ]
    if shape.type_name == "timestamp":
        return parse_timestamp(value).timestamp()
    return value


def _has_type(value: object, shape: Shape) -> bool:
    if isinstance(value, bool):
        return shape.type_name == "boolean"
    return isinstance(value, _TYPES[shape.type_name])


def _check_constraints(value: Any, shape: Shape, path: str, problems: list[str]) -> None:
    metadata = shape.metadata

    def refuse(constraint: str) -> None:
        problems.append(f"Value '{value}' at '{path}' failed to satisfy constraint: Member must {constraint}")

    sized = shape.type_name in ("string", "list", "map")
    measure = len(value) if sized else value
    noun = "have length" if sized else "have value"
    if shape.type_name in ("string", "list", "map", "integer", "long", "float", "double"):
        if "min" in metadata and measure < metadata["min"]:
            refuse(f"{noun} greater than or equal to {metadata['min']}")
        if "max" in metadata and measure > metadata["max"]:
            refuse(f"{noun} less than or equal to {metadata['max']}")
    if shape.type_name == "string":
        if allowed := metadata.get("enum"):
            if value not in allowed:
                refuse(f"satisfy enum value set: [{', '.join(allowed)}]")
        elif (pattern := metadata.get("pattern")) and not _pattern(pattern).fullmatch(value):
            refuse(f"satisfy regular expression pattern: {pattern}")


@functools.cache
def _pattern(pattern: str) -> re.Pattern[str]:
    # The models use Java's Unicode classes; Python's \w and \s stand for the same letters, digits and spaces.
    for java, python in ((r"\p{L}", r"\w"), (r"\p{N}", r"\w"), (r"\p{Z}", r"\s")):
        pattern = pattern.replace(java, python)
    return re.compile(pattern, re.DOTALL)


def _member(path: str, name: str) -> str:
    lowered = name[0].lower() + name[1:]
    return f"{path}.{lowered}" if path else lowered


def problems_of_answer(operation: OperationModel, body: bytes) -> list[str]:
    """Read the body of a good answer against the model.

    Args:
        operation: The operation in botocore's model.
        body: The body as it goes over the wire. Anything for a stream.

    Returns:
        A text for each problem, that names the member by its path. None where there is no problem. Answers in CBOR are
        not read.
    """
    service, shape = operation.service_model, operation.output_shape
    if operation.has_streaming_output or (service.service_name, operation.name) in _NOT_BY_THE_MODEL:
        return []
    if service.resolved_protocol in _JSON_PROTOCOLS:
        return _of_json(shape, body)
    return _of_xml(operation, body) if service.resolved_protocol in _XML_PROTOCOLS else []


def _of_json(shape: Shape | None, body: bytes) -> list[str]:
    try:
        document = json.loads(body or b"{}")
    except ValueError as error:
        return [f"the body is not JSON: {error}"]
    if shape is None:
        return [f"the operation has no output, found {document!r}"] if document not in ({}, None) else []
    payload = _payload(shape)
    return list(_Json().problems(document, shape if payload is None else payload, ""))


def _of_xml(operation: OperationModel, body: bytes) -> list[str]:
    shape, protocol = operation.output_shape, operation.service_model.resolved_protocol
    payload = None if shape is None else _payload(shape)
    if not body.strip() or (payload is not None and payload.type_name != "structure"):
        return [] if shape is None else [f"{name} is missing" for name in _required_in_body(shape)]
    try:
        root = ET.fromstring(body)  # noqa: S314 - the answer of our own server
    except ET.ParseError as error:
        return [f"the body is not XML: {error}"]
    if protocol == "rest-xml":
        found = shape if payload is None else payload
        return [] if found is None else list(_Xml().problems([root], found, ""))
    expected = f"{operation.name}Response"
    if _tag(root) != expected:
        return [f"the root is {_tag(root)}, not {expected}"]
    if protocol == "ec2":
        if shape is None:
            return []  # `<return>true</return>`: what EC2 answers where the model has no output.
        return list(_Xml(beside=("requestId",)).problems([root], shape, ""))
    if shape is None:
        return []
    wrapper = shape.serialization.get("resultWrapper")
    results = [child for child in root if _tag(child) == wrapper] if wrapper else [root]
    if not results:
        return [f"{wrapper} is missing"]
    return list(_Xml(beside=("ResponseMetadata",)).problems(results, shape, ""))


def _payload(shape: Shape) -> Shape | None:
    """Return the member that is the whole body, if one is."""
    name = shape.serialization.get("payload")
    return None if name is None else shape.members[name]  # type: ignore[attr-defined]


def _in_body(shape: Shape) -> dict[str, Shape]:
    members: dict[str, Shape] = shape.members  # type: ignore[attr-defined]
    return {name: member for name, member in members.items() if "location" not in member.serialization}


def _required_in_body(shape: Shape) -> Iterable[str]:
    return (name for name in _in_body(shape) if name in shape.required_members)


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _word_problems(value: str, shape: Shape, path: str) -> Iterable[str]:
    words = getattr(shape, "enum", None)
    if words and value not in words:
        yield f"{path} is {value!r}, not one of {', '.join(words)}"


class _Json:
    """Reads a JSON document."""

    def problems(self, value: Any, shape: Shape, path: str) -> Iterable[str]:
        if getattr(shape, "is_document_type", False):
            return
        kind = shape.type_name
        right = isinstance(value, _JSON_TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")
        if not right:
            yield f"{path or 'the answer'} is {value!r}, not a {kind}"
        elif kind == "structure":
            yield from self._of_structure(value, shape, path)
        elif kind == "list":
            for item in value:
                yield from self.problems(item, shape.member, f"{path}[]")  # type: ignore[attr-defined]
        elif kind == "map":
            for key, item in value.items():
                yield from self.problems(key, shape.key, f"{path} key")  # type: ignore[attr-defined]
                yield from self.problems(item, shape.value, f"{path}{{}}")  # type: ignore[attr-defined]
        elif kind == "string":
            yield from _word_problems(value, shape, path)
        elif kind == "blob":
            yield from _blob_problems(value, path)
        elif kind == "timestamp":
            yield from _timestamp_problems(value, shape, path, default="unixTimestamp")

    def _of_structure(self, value: Mapping[str, Any], shape: Shape, path: str) -> Iterable[str]:
        members = {member.serialization.get("name", name): (name, member) for name, member in _in_body(shape).items()}
        given = {name: item for name, item in value.items() if item is not None}
        for name, item in given.items():
            if name in members:
                yield from self.problems(item, members[name][1], _at(path, name))
            else:
                yield f"{_at(path, name)} is not in the model"
        for written, (name, _) in members.items():
            if name in shape.required_members and written not in given:
                yield f"{_at(path, written)} is missing"


class _Xml:
    """Reads an XML document.

    Args:
        beside: The elements at its root that no model has: each protocol adds its own.
    """

    def __init__(self, *, beside: tuple[str, ...] = ()) -> None:
        self._beside = beside

    def problems(self, nodes: list[ET.Element], shape: Shape, path: str) -> Iterable[str]:
        """Read the elements of one name. A flattened list or map has several, everything else has one."""
        kind, flattened = shape.type_name, bool(shape.serialization.get("flattened"))
        if kind == "list":
            member = shape.member  # type: ignore[attr-defined]
            for item in nodes if flattened else list(nodes[0]):
                name = member.serialization.get("name", "member")
                if not flattened and _tag(item) != name:
                    yield f"{path} holds {_tag(item)}, not {name}"
                else:
                    yield from self.problems([item], member, f"{path}[]")
        elif kind == "map":
            for entry in nodes if flattened else list(nodes[0]):
                yield from self._of_entry(entry, shape, path)
        elif len(nodes) > 1:
            yield f"{path} is there {len(nodes)} times"
        elif kind == "structure":
            yield from self._of_structure(nodes[0], shape, path)
        else:
            yield from self._of_text(nodes[0], shape, path)

    def _of_structure(self, node: ET.Element, shape: Shape, path: str) -> Iterable[str]:
        members = {_written_name(member, name): (name, member) for name, member in _in_body(shape).items()}
        given: dict[str, list[ET.Element]] = {}
        for child in node:
            given.setdefault(_tag(child), []).append(child)
        for name, nodes in given.items():
            if name in members:
                yield from self.problems(nodes, members[name][1], _at(path, name))
            elif path or name not in self._beside:
                yield f"{_at(path, name)} is not in the model"
        for written, (name, member) in members.items():
            # A flattened list that is empty has no element, and an attribute is none.
            elementless = member.serialization.get("flattened") or member.serialization.get("xmlAttribute")
            if name in shape.required_members and written not in given and not elementless:
                yield f"{_at(path, written)} is missing"

    def _of_entry(self, entry: ET.Element, shape: Shape, path: str) -> Iterable[str]:
        parts = {"key": shape.key, "value": shape.value}  # type: ignore[attr-defined]
        names = {part.serialization.get("name", name): part for name, part in parts.items()}
        if {_tag(child) for child in entry} != names.keys():
            yield f"{path} has an entry that is no pair of {' and '.join(names)}"
            return
        for child in entry:
            yield from self.problems([child], names[_tag(child)], f"{path}{{}}")

    @staticmethod
    def _of_text(node: ET.Element, shape: Shape, path: str) -> Iterable[str]:
        text, kind = node.text or "", shape.type_name
        if len(node):
            yield f"{path} is an element with elements, not a {kind}"
        elif kind == "string":
            yield from _word_problems(text, shape, path)
        elif kind == "timestamp":
            yield from _timestamp_problems(text, shape, path, default="iso8601")
        elif kind == "blob":
            yield from _blob_problems(text, path)
        elif not _TEXTS[kind].fullmatch(text):
            yield f"{path} is {text!r}, not a {kind}"


def _written_name(member: Shape, name: str) -> str:
    if member.type_name == "list" and member.serialization.get("flattened"):
        of_item = member.member.serialization.get("name")  # type: ignore[attr-defined]
        if of_item is not None:
            return str(of_item)
    return str(member.serialization.get("name", name))


def _timestamp_problems(value: Any, shape: Shape, path: str, *, default: str) -> Iterable[str]:
    form = shape.serialization.get("timestampFormat", default)
    numeric = form == "unixTimestamp"
    fits = not isinstance(value, str) if numeric else isinstance(value, str) and _TIMESTAMPS[form].fullmatch(value)
    if not fits:
        yield f"{path} is {value!r}, not a timestamp in the format {form}"


def _blob_problems(text: str, path: str) -> Iterable[str]:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        yield f"{path} is {text[:40]!r}, not base64"


def _tag(node: ET.Element) -> str:
    return _BEFORE_THE_NAME.sub("", node.tag)
