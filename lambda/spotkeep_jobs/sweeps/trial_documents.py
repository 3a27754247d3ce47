"""The job documents of trials, each made from the document of the sweep. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_core import PydanticCustomError

from spotkeep_jobs.document.metrics import read_metrics
from spotkeep_jobs.document.reading import MAX_RUN_ID_LENGTH, RUN_ID_HEX_DIGITS, nearest, shown
from spotkeep_jobs.document.request import JobRequest, Validation
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.ids import run_of_trial
from spotkeep_jobs.record.sweep import ParameterValue, Trial
from spotkeep_jobs.sweeps.document import SweepRequest
from spotkeep_jobs.sweeps.search.search import Begin, Move, next_moves

_PLACEHOLDER: Final = re.compile(r"\{(?P<index>index)\}|\{parameters\.(?P<parameter>[^{}]+)\}")


def sweep_id_for(document: Mapping[str, Any], request: SweepRequest, *, token: str) -> str:
    """Return the id of a sweep.

    It is the id that the document gives, or the document's name and the beginning of its token's hash.

    Args:
        document: The sweep's document.
        request: Its sweep.
        token: The launch's token.
    """
    return id_of(document, token=token, behind=1 + len(str(request.most_trials)), nameless="sweep")


def id_of(document: Mapping[str, Any], *, token: str, behind: int, nameless: str) -> str:
    """Return the id that a document gives as its run, or its name and the beginning of its token's hash.

    Args:
        document: A document of which several runs are made.
        token: The launch's token.
        behind: The number of characters that come behind it in the ids of these runs.
        nameless: The name of a document that has none.
    """
    if document.get("run") is not None:
        return str(document["run"])
    digits = hashlib.sha256(token.encode()).hexdigest()[:RUN_ID_HEX_DIGITS]
    # What stands for a parameter is another in each trial.
    words = re.findall(r"[a-zA-Z0-9]+", re.sub(r"\{[^{}]*\}", "", str(document.get("name", ""))))
    longest = MAX_RUN_ID_LENGTH - 1 - RUN_ID_HEX_DIGITS - behind
    return f"{'-'.join(words)[:longest].strip('-') or nameless}-{digits}"


def trial_document(
    document: Mapping[str, Any], request: SweepRequest, *, trial: Trial, token: str, owner: str | None
) -> dict[str, Any]:
    """Return the job document of a trial.

    Args:
        document: The sweep's document.
        request: Its sweep.
        trial: The trial.
        token: The sweep's token.
        owner: The owner of the sweep.
    """
    template = {name: value for name, value in document.items() if name not in {"sweep", "run", "token", "max_cost"}}
    own: dict[str, Any] = _filled_in(template, number=trial.number, parameters=trial.parameters)
    own["run"] = trial.run
    own["token"] = hashlib.sha256(f"{token}\n{trial.number}".encode()).hexdigest()
    given = own.get("hyperparameters")
    own["hyperparameters"] = {**(given if isinstance(given, Mapping) else {}), **trial.parameters}
    if not request.notify_trials:
        own["notify"] = []
    if owner is not None:
        own["owner"] = owner
    if trial.max_cost_usd is not None:
        own["max_cost"] = trial.max_cost_usd
    if trial.pause_at_step is not None:
        own["pause_at_step"] = trial.pause_at_step
    if request.objective is not None:
        own["metrics"] = _with_objective(own.get("metrics"), request)
    return own


def placeholder_problems(document: Mapping[str, Any], parameters: Mapping[str, ParameterValue]) -> list[Problem]:
    """Return the placeholders of a document that stand for no parameter.

    Args:
        document: The sweep's document.
        parameters: The parameters of any of its trials.
    """
    return [
        Problem(
            field=field,
            found=shown(f"{{parameters.{name}}}"),
            problem="stands for a parameter that the sweep does not have",
            fix=nearest(name, tuple(parameters)),
        )
        for field, value in document.items()
        if field != "sweep"
        for text in _texts_in(value)
        for match in _PLACEHOLDER.finditer(text)
        if (name := match["parameter"]) is not None and name not in parameters
    ]


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts_in(each)


def _filled_in(value: Any, *, number: int, parameters: Mapping[str, ParameterValue]) -> Any:
    """Return a value with its placeholders filled in. A text that is one placeholder becomes the value itself."""
    if isinstance(value, Mapping):
        return {name: _filled_in(each, number=number, parameters=parameters) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_filled_in(each, number=number, parameters=parameters) for each in value]
    if not isinstance(value, str):
        return value

    def meant(match: re.Match[str]) -> ParameterValue:
        return number if match["index"] else parameters.get(match["parameter"], match[0])

    alone = _PLACEHOLDER.fullmatch(value)
    if alone is not None:
        return meant(alone)
    return _PLACEHOLDER.sub(lambda match: _as_text(meant(match)), value)


def _as_text(value: ParameterValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _with_objective(metrics: Any, request: SweepRequest) -> Any:
    """Return a document's metrics with the objective among them, and its goal."""
    objective = request.objective
    if objective is None:
        return metrics
    try:
        known = read_metrics({} if metrics is None else metrics)
    except PydanticCustomError:
        return metrics  # The trial's document is refused for it, in these words.
    if not isinstance(known, Mapping):
        return known
    said = known.get(objective.metric) or {}
    return {**known, objective.metric: {**said, "goal": objective.goal}} if isinstance(said, Mapping) else known


JUDGED_TRIALS: Final = 20
"""The number of trials that are judged before a sweep is launched. Of listed trials, all are."""


@dataclass(frozen=True, kw_only=True)
class FirstTrial:
    """A trial that would be begun.

    Attributes:
        number: From 1.
        parameters: By name.
        document: Its job document.
    """

    number: int
    parameters: Mapping[str, ParameterValue]
    document: Mapping[str, Any]


def first_trials(
    document: Mapping[str, Any], request: SweepRequest, *, token: str, owner: str | None
) -> tuple[FirstTrial, ...]:
    """Return the first trials of a sweep. Of a listed sweep, these are all trials.

    Args:
        document: The sweep's document.
        request: Its sweep, in which everything fits together.
        token: The launch's token.
        owner: The owner of the sweep.
    """
    plan = request.plan
    moves: Sequence[Move] = request.listed_begins(begun=0)
    if plan is not None:
        # Where tpe begins is as good as anywhere in its space.
        sampled = replace(plan, search="random") if plan.search == "tpe" else plan
        moves = next_moves(sampled, trials=(), free=min(JUDGED_TRIALS, plan.trials))
    sweep = sweep_id_for(document, request, token=token)
    return tuple(
        FirstTrial(
            number=move.number,
            parameters=move.parameters,
            document=trial_document(
                document,
                request,
                trial=Trial(
                    sweep=sweep,
                    number=move.number,
                    run=run_of_trial(sweep, move.number),
                    parameters=dict(move.parameters),
                    pause_at_step=move.pause_at_step,
                    max_cost_usd=document.get("max_cost"),
                ),
                token=token,
                owner=owner,
            ),
        )
        for move in moves
        if isinstance(move, Begin)
    )


@dataclass(frozen=True, kw_only=True)
class JudgedTrials:
    """The judgement of the documents of trials.

    Attributes:
        requests: The accepted requests.
        problems: The problems, each with the number of the first trial that has it.
        warnings: Probable mistakes.
    """

    requests: list[JobRequest]
    problems: list[Problem]
    warnings: list[str]


def judged_trials(
    trials: Sequence[FirstTrial], *, judge: Callable[[Mapping[str, Any]], Validation], known: Sequence[Problem] = ()
) -> JudgedTrials:
    """Judge the documents of trials by themselves. A problem that several of them have is named once.

    Args:
        trials: The trials.
        judge: Judges the document of one.
        known: The problems of the trials before them.
    """
    seen = {(problem.field, problem.problem) for problem in known}
    requests: list[JobRequest] = []
    problems: list[Problem] = []
    warnings: list[str] = []
    for trial in trials:
        validation = judge(trial.document)
        requests += [] if validation.request is None else [validation.request]
        for problem in validation.problems:
            if (problem.field, problem.problem) not in seen:
                seen.add((problem.field, problem.problem))
                place = problem.field if trial.number == 1 else f"{problem.field} (trial {trial.number})"
                problems.append(replace(problem, field=place))
        warnings += validation.warnings
    return JudgedTrials(requests=requests, problems=problems, warnings=warnings)
