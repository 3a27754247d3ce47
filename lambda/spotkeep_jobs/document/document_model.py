"""What each part of a job document is a model of: its fields are described by the docstrings below them.

A description is the fix of a refusal, and what an editor shows. It is read from the source when one of the two is
needed: pydantic's own `use_attribute_docstrings` reads it while a model is imported, at each start of a function.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
from collections.abc import Mapping
from copy import copy
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


def _describe_properties(schema: dict[str, Any], model: type[BaseModel]) -> None:
    for name, field in described_fields(model).items():
        if field.description is not None:
            schema["properties"][name]["description"] = field.description


class DocumentModel(BaseModel):
    """A part of a document; a field that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_describe_properties)


def described_fields(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """Return the fields of a model by name; those of a `DocumentModel` with the docstrings below them.

    Args:
        model: Any model. Of another one the fields are returned as they are.
    """
    return _with_docstrings(model) if issubclass(model, DocumentModel) else model.model_fields


@functools.cache
def _with_docstrings(model: type[DocumentModel]) -> Mapping[str, FieldInfo]:
    fields = {name: copy(field) for name, field in model.model_fields.items()}
    for each in reversed(model.__mro__):
        if issubclass(each, DocumentModel):
            for name, docstring in _docstrings_of(each.__module__).get(each.__name__, {}).items():
                fields[name].description = fields[name].description or docstring
    return fields


@functools.cache
def _docstrings_of(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings below the fields of a module's classes, by class and field."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found: dict[str, dict[str, str]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            of_class = found.setdefault(statement.name, {})
            for field, below in itertools.pairwise(statement.body):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        of_class[name] = inspect.cleandoc(text)
    return found
