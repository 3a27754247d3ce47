"""The entry point: what the launcher asks is read, answered, and what cannot be read is an error."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from search.handler import handler
from spotkeep_jobs.sweeps.search.search import SearchPlan
from spotkeep_jobs.sweeps.search.tpe_request import TpeAnswer, TpeRequest
from spotkeep_jobs.sweeps.space import Space

CONTEXT: Any = SimpleNamespace(
    function_name="spotkeep-search", memory_limit_in_mb=1769, invoked_function_arn="arn", aws_request_id="1"
)


def test_it_answers_what_the_launcher_asks() -> None:
    space = Space.model_validate({"lr": {"log_uniform": [1e-5, 1e-2]}, "depth": [18, 34, 50]})
    plan = SearchPlan(space=space, search="tpe", trials=4, goal="maximize")
    event = json.loads(TpeRequest.of(plan, trials=(), free=8).model_dump_json())
    answer = TpeAnswer.model_validate_json(json.dumps(handler(event, CONTEXT)))
    assert [move.number for move in answer.chosen] == [1, 2, 3, 4]
    assert all(list(move.parameters) == ["lr", "depth"] for move in answer.chosen)


@pytest.mark.parametrize("event", [None, {}, {"space": {}}, [1]])
def test_what_is_no_question_is_an_error(event: object) -> None:
    with pytest.raises(ValidationError):
        handler(event, CONTEXT)
