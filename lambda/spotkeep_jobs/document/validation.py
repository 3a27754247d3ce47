"""Validation of a job document: every problem at once, each with the field, what was found and what to do (I7).

The fields are read one by one (`document.reading`); a rule between fields (`rules`) is judged when all the fields it is
about could be read. What a deployment adds comes in as `DeploymentDefaults`. Pure: what only AWS or the run table can
know is checked by `actions.launch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from spotkeep_jobs.document.deployment_defaults import NO_DEFAULTS, DeploymentDefaults, with_defaults
from spotkeep_jobs.document.reading import MAX_PROBLEMS, read_document, shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules import RULES
from spotkeep_jobs.document.rules.deadline_and_cost import DEADLINE_READS, deadline_can_be_kept
from spotkeep_jobs.document.rules.spending import COST_READS, cost_problems
from spotkeep_jobs.document.rules.warnings import warnings_of
from spotkeep_jobs.errors import Problem, RequestRefusedError


@dataclass(frozen=True, kw_only=True)
class Validation:
    """What became of a document.

    Attributes:
        request: the request with every default filled in; None if it is refused.
        draft: what of the document could be read, placeholders and defaults elsewhere; None if it is no object.
        problems: why it is refused; empty if it is not.
        warnings: what is allowed but probably not meant, in sentences.
    """

    request: JobRequest | None
    draft: JobRequest | None
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]

    def accepted(self) -> JobRequest:
        """The request.

        Raises:
            RequestRefusedError: the document is refused.
        """
        if self.request is None:
            raise RequestRefusedError(self.problems, warnings=self.warnings)
        return self.request


def validate(
    document: object, *, defaults: DeploymentDefaults = NO_DEFAULTS, now: datetime | None = None
) -> Validation:
    """Judge a job document as a whole.

    Args:
        document: whatever was sent, of any type.
        defaults: what the deployment fills in and insists on.
        now: when the run would be launched: its deadline and its worst cost are then judged. None for a document that
            was accepted before.
    """
    if not isinstance(document, Mapping):
        problem = Problem(
            field="(document)",
            found=shown(document),
            problem="is not a JSON object",
            fix='Send an object with at least `name` and `command`: {"name": "first", "command": "python train.py"}',
        )
        return Validation(request=None, draft=None, problems=(problem,), warnings=())
    request, problems, unread = read_document(document)
    request = with_defaults(request, given=document.keys() - unread, defaults=defaults)
    for rule in RULES:
        if unread.isdisjoint(rule.reads):
            problems.extend(rule.problems(request, defaults))
    if now is not None and unread.isdisjoint(DEADLINE_READS):
        problems.extend(deadline_can_be_kept(request, now=now))
    if now is not None and unread.isdisjoint(COST_READS):
        problems.extend(cost_problems(request, limits=defaults.limits, prices=defaults.prices, now=now))
    warnings = tuple(warnings_of(request, defaults)) if not unread else ()
    if len(problems) > MAX_PROBLEMS:
        more = Problem(
            field="(document)",
            found=f"more than {MAX_PROBLEMS} problems",
            problem="has more problems than are shown",
            fix="Correct those above and validate again.",
        )
        problems = [*problems[:MAX_PROBLEMS], more]
    return Validation(request=None if problems else request, draft=request, problems=tuple(problems), warnings=warnings)
