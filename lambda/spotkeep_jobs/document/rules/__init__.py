"""What must hold between the fields of a job document, by what the rules are about. Each rule yields problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
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
