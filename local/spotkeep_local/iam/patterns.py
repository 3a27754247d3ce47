"""Texts of policies that stand for many texts, by wildcards and by policy variables that a request fills in.

| in the policy | stands for |
|---|---|
| `*`, `?` | any characters, none among them. Any one character (where wildcards are read) |
| `${aws:username}` | the value of that condition key. Without one the text stands for nothing |
| `${aws:PrincipalTag/team, 'none'}` | the same with a value for requests without the key |
| `${*}`, `${?}`, `${$}` | these characters themselves |

The value of a variable stands for itself. A `*` in it is a character.

Sources: "IAM policy elements: Variables and tags", "IAM JSON policy elements: Resource" in the IAM user guide.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Values = Mapping[str, tuple[str, ...]]
    """The condition keys of a request in lower case, and their values."""


class Wildcard(Enum):
    """A sign for characters that the policy does not name."""

    ANY = "*"
    ONE = "?"


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A place that the request fills in.

    Attributes:
        key: The condition key, in lower case: keys are not case-sensitive.
        default: For requests without it.
    """

    key: str
    default: str | None


_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
_NAMED: Final = re.compile(r"""\s*(?P<key>[^\s,:']+:[^,']+?)\s*(?:,\s*'(?P<default>[^']*)'\s*)?""")
_ESCAPED: Final = frozenset("*?$")
_ARN_SECTIONS: Final = 6


@dataclass(frozen=True)
class Pattern:
    """One text of a policy.

    Attributes:
        text: The text as it is written.
        parts: Its parts, in order.
    """

    text: str
    parts: tuple[str | Wildcard | Variable, ...]

    def matches(self, value: str, values: Values) -> bool:
        """Return whether it stands for a value, colons included, as in `StringLike` and in a `Resource`."""
        if self._literal is not None:
            return value == self._literal
        if self._plain is not None:
            return self._plain.fullmatch(value) is not None
        filled = self._filled(values)
        return filled is not None and _expression(filled).fullmatch(value) is not None

    def matches_arn(self, value: str, values: Values) -> bool:
        """Return whether it stands for an ARN, section by section. No wildcard reaches over one of the five colons."""
        filled = self._filled(values)
        expression = None if filled is None else _arn_expression(filled)
        return expression is not None and expression.fullmatch(value) is not None

    def filled(self, values: Values) -> str | None:
        """Return the text that a pattern without wildcards is for a request. None when a variable has no value."""
        parts = self._filled(values)
        return None if parts is None else "".join(part for part in parts if isinstance(part, str))

    @functools.cached_property
    def variables(self) -> tuple[Variable, ...]:
        """Its variables, in their order."""
        return tuple(part for part in self.parts if isinstance(part, Variable))

    @functools.cached_property
    def _literal(self) -> str | None:
        # As nearly all actions are. The expressions of all of them take a new local AWS longer than its first calls.
        return "".join(map(str, self.parts)) if all(isinstance(part, str) for part in self.parts) else None

    @functools.cached_property
    def _plain(self) -> re.Pattern[str] | None:
        return None if self.variables else _expression(_without_variables(self.parts))

    def _filled(self, values: Values) -> tuple[str | Wildcard, ...] | None:
        if not self.variables:
            return _without_variables(self.parts)
        found: list[str | Wildcard] = []
        for part in self.parts:
            if not isinstance(part, Variable):
                found.append(part)
                continue
            # A key with several values fills nothing in: AWS takes keys with one value.
            given = values.get(part.key, ())
            value = given[0] if len(given) == 1 else part.default
            if value is None:
                return None
            found.append(value)
        return tuple(found)


def read_pattern(text: str, *, wildcards: bool, variables: bool) -> Pattern:
    """Read a text of a policy.

    Args:
        text: The text as it is written.
        wildcards: True where `*` and `?` stand for other characters here.
        variables: True where `${...}` is filled in, as in resources and conditions of policies of version 2012-10-17.

    Raises:
        ValueError: It holds a variable that names no condition key.
    """
    parts: list[str | Wildcard | Variable] = []
    position = 0
    for found in _VARIABLE.finditer(text) if variables else ():
        parts += _plain_parts(text[position : found.start()], wildcards=wildcards)
        parts.append(found[1] if found[1] in _ESCAPED else _variable(found[1], text))
        position = found.end()
    if variables and "${" in text[position:]:
        raise ValueError(f"`{text}` has a `${{` that is not closed; write `${{$}}{{` for the characters themselves")
    parts += _plain_parts(text[position:], wildcards=wildcards)
    return Pattern(text, tuple(parts))


def _variable(inside: str, text: str) -> Variable:
    named = _NAMED.fullmatch(inside)
    if named is None:
        raise ValueError(
            f"`{text}` has a policy variable that is not known: `${{{inside}}}`; it takes a condition key with its "
            "service, as `${aws:username}`, and after a comma a default in single quotes"
        )
    return Variable(key=named["key"].lower(), default=named["default"])


def _plain_parts(text: str, *, wildcards: bool) -> Iterable[str | Wildcard]:
    if not wildcards:
        return (text,) if text else ()
    pieces = re.split(r"([*?])", text)
    return [Wildcard(piece) if number % 2 else piece for number, piece in enumerate(pieces) if piece]


def _without_variables(parts: Iterable[str | Wildcard | Variable]) -> tuple[str | Wildcard, ...]:
    return tuple(part for part in parts if not isinstance(part, Variable))


@functools.lru_cache(maxsize=4096)
def _expression(parts: tuple[str | Wildcard, ...]) -> re.Pattern[str]:
    return re.compile(_regular(parts, any_character="."), re.DOTALL)


@functools.lru_cache(maxsize=4096)
def _arn_expression(parts: tuple[str | Wildcard, ...]) -> re.Pattern[str] | None:
    sections: list[list[str | Wildcard]] = [[]]
    for part in parts:
        if isinstance(part, Wildcard):
            sections[-1].append(part)
            continue
        first, *others = part.split(":", _ARN_SECTIONS - len(sections))
        sections[-1].append(first)
        sections += [[other] for other in others]
    if len(sections) != _ARN_SECTIONS:
        return None
    *qualifiers, resource = sections
    expressions = [*(_regular(section, any_character="[^:]") for section in qualifiers)]
    return re.compile(":".join([*expressions, _regular(resource, any_character=".")]), re.DOTALL)


def _regular(parts: Iterable[str | Wildcard], *, any_character: str) -> str:
    """Write a regular expression that takes linear time. The part before the last `*` is never tried again."""
    pieces = [""]
    for part in parts:
        if part is Wildcard.ANY:
            pieces.append("")
        else:
            pieces[-1] += any_character if part is Wildcard.ONE else re.escape(str(part))
    first, *others = pieces
    if not others:
        return first
    *between, last = others
    return first + "".join(f"(?>{any_character}*?{piece})" for piece in between) + f"{any_character}*{last}"
