"""The JSON schema of a job file, as a whole and for one place.

The schema of a place decides if an unquoted word there is text or a number.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MOST_DIGITS = 400
"""The most digits of a whole number that is compared with its text. Python is slow with more."""


@dataclass(frozen=True, kw_only=True)
class FieldSchema:
    """The values that one place of a job file may hold.

    Attributes:
        forms: The schemas of these values, without references and choices. None where nothing is known.
        definitions: The targets of references, by name.
        at: The place.
    """

    forms: tuple[Mapping[str, Any], ...]
    definitions: Mapping[str, Any]
    at: tuple[str | int, ...] = ()

    @classmethod
    def of_job_file(cls) -> FieldSchema:
        """Return the schema of a whole job file."""
        return _of_job_file()

    def inside(self, part: str | int) -> FieldSchema:
        """Return the schema of a place inside this one.

        Args:
            part: The field, the name, or the position.
        """
        parts = [inner for form in self.forms for inner in _parts(form, part)]
        return FieldSchema(
            forms=tuple(form for each in parts for form in _forms(each, self.definitions)),
            definitions=self.definitions,
            at=(*self.at, part),
        )

    @property
    def is_text(self) -> bool:
        """True if a single value there is text in the end. A duration is not."""
        return self._takes_text_alone or self._turns_into_text

    @property
    def _takes_text_alone(self) -> bool:
        types = frozenset[str]().union(*map(_types, self.forms))
        return "string" in types and not types & {"number", "integer", "boolean"}

    @property
    def _turns_into_text(self) -> bool:
        """True if a number or a boolean becomes text there. A duration is one or the other."""
        return any(_types(form) >= {"string", "number"} for form in self.forms)

    @property
    def _is_for_a_script(self) -> bool:
        """True if a script also gets it as JSON. A number stays a number there, and `True` becomes JSON's true.

        docs/environment-variables.md says how.
        """
        return self.at[:1] in {("hyperparameters",), ("sweep",)}

    def text_of_number(self, number: str) -> str | None:
        """Return the text that a number is kept as.

        A number is kept as text where the field is text and JSON would write it differently. Otherwise the result is
        None. `.9` of a hyperparameter stays a number, and `.inf` is JSON's Infinity. Scripts calculate with them.
        `1e-3` in a sweep stays a number too. People calculate with the values of its trials.

        Args:
            number: The number as it is written, in one of YAML's forms.
        """
        if self._takes_text_alone:
            return number
        if not self._turns_into_text or _is_as_json_writes(number):
            return None
        if self.at[:1] == ("sweep",) and _WITH_SIGNED_EXPONENT.fullmatch(number):
            return None
        if not self._is_for_a_script:
            return number
        sign, digits = ("-", number[1:]) if number.startswith("-") else ("", number.removeprefix("+"))
        if digits.casefold() in _NOT_FINITE:
            return sign + _NOT_FINITE[digits.casefold()]
        with_zero = f"{sign}0{digits}" if digits.startswith(".") else f"{number}0"
        is_number = "." in (digits[0], digits[-1]) and _is_as_json_writes(with_zero)
        return None if is_number else number

    def keeps_boolean(self, text: str) -> bool:
        """Return True if true or false is kept as its text there.

        Args:
            text: The written form, such as true, True or TRUE.
        """
        if self._is_for_a_script:
            return self._takes_text_alone
        return self._takes_text_alone or (self._turns_into_text and text not in {"true", "false"})


_WITH_SIGNED_EXPONENT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?[eE][-+][0-9]{1,3}")
"""No version and no commit is written so."""
_NOT_FINITE = {".inf": "Infinity", ".nan": "NaN"}


@functools.cache
def _of_job_file() -> FieldSchema:
    schema = job_file_schema()
    return FieldSchema(forms=(schema,), definitions=schema["$defs"])


def _parts(form: Mapping[str, Any], part: str | int) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas of a part of a form. A position of a list may be a name of a mapping."""
    of_others = form.get("additionalProperties")
    if isinstance(part, int) and "items" in form:
        yield form["items"]
    if str(part) in form.get("properties", {}):
        yield form["properties"][str(part)]
    elif isinstance(of_others, Mapping):
        yield of_others


def _forms(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "$ref" in schema:
        yield from _forms(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    elif "anyOf" in schema:
        for choice in schema["anyOf"]:
            yield from _forms(choice, definitions)
    else:
        yield schema


def _types(form: Mapping[str, Any]) -> frozenset[str]:
    types = form.get("type", ())
    return frozenset([types] if isinstance(types, str) else types)


def _is_as_json_writes(number: str) -> bool:
    if len(number) > _MOST_DIGITS:
        return False
    for read in (int, float):
        try:
            return json.dumps(read(number)) == number
        except ValueError:
            continue
    return False  # Infinity and NaN, in YAML's spelling.


def job_file_schema() -> dict[str, Any]:
    """Return the schema of job.yaml, where a source may also be a path of this machine, or a branch."""
    from spotkeep_jobs.document.request import JobRequest
    from spotkeep_jobs.schedules.document import ScheduleRequest
    from spotkeep_jobs.sweeps.document import SweepRequest

    schema = JobRequest.model_json_schema()
    source = schema["properties"]["source"]
    source["anyOf"] = [
        {"type": "string", "minLength": 1, "description": "A path relative to the job file, packed and uploaded."},
        *source["anyOf"],
        {
            "type": "object",
            "properties": {"git": {"type": "string"}, "branch": {"type": "string", "minLength": 1}},
            "required": ["git", "branch"],
            "additionalProperties": False,
            "description": "A branch or tag. The launch takes its commit.",
        },
    ]
    source["examples"] = [".", *source.get("examples", [])]
    sweep = SweepRequest.model_json_schema()
    schema["$defs"] |= sweep.pop("$defs", {})
    schema["properties"]["sweep"] = sweep | {
        "description": "Makes a sweep of it: many trials, each a run with parameters of its own (spotkeep help sweeps)."
    }
    schedule = ScheduleRequest.model_json_schema()
    schema["properties"]["schedule"] = {
        "anyOf": [{"type": "string", "minLength": 1, "description": "The expression alone."}, schedule],
        "description": "Launches it again and again: cron(...) or rate(...), with a time zone "
        "(spotkeep help schedules).",
        "examples": ["cron(0 2 * * ? *)"],
    }
    return {"$schema": SCHEMA_DIALECT, **schema, "title": "Spotkeep job file"}
