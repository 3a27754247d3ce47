"""Parses the plan that may come with a job document. It has the solved policy as a table, and the forecasts."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import ValidationError

from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.bounds import MAX_PLAN_BYTES
from spotkeep_jobs.record.record import Plan
from spotkeep_planner.steering import DecisionTable


def plan_of(document: object) -> tuple[object, Plan | None, list[Problem]]:
    """Return a document without its plan, the plan, and the plan's problems.

    Args:
        document: A payload of any type.
    """
    if not isinstance(document, Mapping) or "plan" not in document:
        return document, None, []
    given = document["plan"]
    rest = {name: value for name, value in document.items() if name != "plan"}
    if given is None:
        return rest, None, []
    if document.get("runs") not in (None, 1):
        problem = "is of one run, and the document launches several"
        return rest, None, [Problem(field="plan", found=shown(given), problem=problem, fix="Remove it.")]
    try:
        return rest, _parsed(given), []
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in detail["loc"])
        return (
            rest,
            None,
            [_problem(given, f"cannot be read ({where}: {detail['msg']})" if where else "cannot be read")],
        )
    except ValueError as error:  # DecisionTableError is one.
        return rest, None, [_problem(given, f"cannot be used: {error}")]


def _parsed(given: object) -> Plan:
    plan = Plan.model_validate(given)
    size = len(json.dumps(given, default=str))
    if size > MAX_PLAN_BYTES:
        raise ValueError(f"it has {size:,} bytes, {MAX_PLAN_BYTES:,} are allowed")
    table = DecisionTable.from_document(plan.table)
    if len(table.zones) != 1:
        raise ValueError("its table chooses among zones, and managed spot chooses them itself")
    return plan


def _problem(given: object, problem: str) -> Problem:
    fix = "Launch with `spotkeep launch`, which makes one, or without: the guard alone then keeps the deadline."
    return Problem(field="plan", found=shown(given), problem=problem, fix=fix)
