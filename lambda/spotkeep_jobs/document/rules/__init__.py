"""What must hold between the fields of a job document, by what the rules are about. Each rule yields problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.reading import outlined
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import Problem


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What must hold between fields.

    Attributes:
        reads: The fields it is about; it is judged when all of them could be read.
        problems: What is wrong with a request, in this deployment.
    """

    reads: frozenset[str]
    problems: Callable[[JobRequest, DeploymentDefaults], Iterator[Problem]]


def rule(*reads: str) -> Callable[[Callable[[JobRequest, DeploymentDefaults], Iterator[Problem]]], Rule]:
    """Make a rule of a function that yields problems.

    Args:
        reads: The fields it is about.
    """
    return lambda problems: Rule(reads=frozenset(reads), problems=problems)


def foreign_fields(request: JobRequest, fixes: Mapping[str, str], *, problem: str) -> Iterator[Problem]:
    """Yield those of some fields that were given, where none of them may be.

    Args:
        request: The request.
        fixes: What to do instead, by field.
        problem: What is wrong with each.
    """
    for field, fix in fixes.items():
        if not request.has_default(field):
            yield Problem(field=field, found=outlined(getattr(request, field)), problem=problem, fix=fix)
