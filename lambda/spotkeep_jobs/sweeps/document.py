"""The sweep of a job document, with its trials, its search and its end. Pure.

A sweep's document is a job document with `sweep`. Its other fields are the template of the trials' own documents
(`trial_documents`), which are judged as any job document is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, WithJsonSchema

from spotkeep_jobs.document.command import read_hyperparameter_name
from spotkeep_jobs.document.metrics import read_metric_name
from spotkeep_jobs.document.reading import (
    MAX_RUN_ID_LENGTH,
    DocumentModel,
    WholeNumber,
    Wording,
    json_bytes,
    problems_of,
    shown,
    too_large,
    wrong,
)
from spotkeep_jobs.document.spending import UsDollars
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.fields import MAX_PARAMETERS_BYTES, MAX_SWEEP_BYTES
from spotkeep_jobs.record.ids import MAX_TRIALS
from spotkeep_jobs.record.sweep import ParameterValue
from spotkeep_jobs.sweeps.budget import usd_per_second
from spotkeep_jobs.sweeps.search.search import Begin, SearchName, SearchPlan
from spotkeep_jobs.sweeps.search.tpe_request import MOST_TRIALS as MOST_TRIALS_OF_TPE
from spotkeep_jobs.sweeps.space import Space

if TYPE_CHECKING:
    from spotkeep_jobs.document.request import JobRequest

MAX_LISTED_TRIALS: Final = 1_000
"""As far as they fit into the sweep's record, of `MAX_SWEEP_BYTES`."""


MAX_TPE_BYTES: Final = 5_000_000
"""The most bytes of the parameters of all trials of a search by tpe. Lambda hands its function 6 MB."""


class Objective(DocumentModel):
    """The goal of the search, a metric of the trials and the direction of its best value."""

    metric: Annotated[str, BeforeValidator(read_metric_name)] = Field(examples=["validation_loss"])
    """The metric's name, as the script logs it, or as `metrics` finds it in the script's output."""
    goal: Literal["minimize", "maximize"]
    """minimize or maximize."""


class StopRule(DocumentModel):
    """When a trial that trains is stopped before its end."""

    patience: WholeNumber = Field(ge=1, le=100_000, examples=[5])
    """A trial is stopped when so many values of the objective in a row were no better than its best one."""


class Asha(DocumentModel):
    """Asynchronous successive halving: all trials train a little, the best ones more.

    Source: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, algorithm 2
    """

    min_steps: WholeNumber = Field(ge=1, le=10**9, examples=[100])
    """The steps after which a trial first waits to be promoted."""
    max_steps: WholeNumber = Field(ge=1, le=10**9, examples=[2700])
    """The steps of a whole training."""
    reduction_factor: WholeNumber = Field(default=3, ge=2, le=100)
    """One of so many trials is promoted, to so many times the steps. Default: 3."""


def _read_trials(value: object) -> int | tuple[dict[str, ParameterValue], ...]:
    """Return how many trials there are, or the parameters of each."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MAX_TRIALS:
            raise wrong(f"is out of range: 1 to {MAX_TRIALS} are allowed", f"Choose 1 to {MAX_TRIALS}")
        return value
    if not isinstance(value, list | tuple):
        raise wrong("is neither a number nor a list of trials", "Write 200, or a list: [{lr: 0.1}, {lr: 0.01}]")
    if not 1 <= len(value) <= MAX_LISTED_TRIALS:
        raise wrong(f"has {len(value)} trials; 1 to {MAX_LISTED_TRIALS} can be listed", "Search a space instead")
    return tuple(_read_trial(number, each) for number, each in enumerate(value, start=1))


def _read_trial(number: int, value: object) -> dict[str, ParameterValue]:
    if not isinstance(value, Mapping) or not value:
        raise wrong(f"has a trial, the {number}., that is no mapping of parameters", "Write each as {lr: 0.1}")
    for name, each in value.items():
        read_hyperparameter_name(name)
        if not isinstance(each, str | int | float) or (isinstance(each, float) and not math.isfinite(each)):
            raise wrong(
                f"has a trial, the {number}., whose {name} is no single value", "Give text, a number or a boolean"
            )
    return dict(value)


Trials = Annotated[
    Any,
    BeforeValidator(_read_trials),
    PlainSerializer(lambda value: value if isinstance(value, int) else list(value)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MAX_TRIALS},
                {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MAX_LISTED_TRIALS,
                    "items": {
                        "type": "object",
                        "minProperties": 1,
                        "additionalProperties": {"type": ["string", "number", "boolean"]},
                    },
                },
            ]
        }
    ),
]


class SweepRequest(DocumentModel):
    """Many trials of one job: each a run with parameters of its own."""

    parameters: Space | None = Field(default=None, examples=[{"lr": {"log_uniform": [1e-5, 1e-2]}, "depth": [18, 34]}])
    """The values of a trial's parameters, by their names. Each is a hyperparameter of the trial. {parameters.lr} in
    names and values stands for it, and {index} for the trial's number."""
    search: SearchName | None = Field(default=None, examples=["random"])
    """The way to choose trials. It is grid (every combination), random, sobol (evenly spread), tpe (near earlier good
    ones) or asha (random ones, and the best of them train longer). Default: none, `trials` lists them."""
    trials: Trials = Field(default=None, examples=[200])
    """The number of trials, 1 to 10,000, or a list of the parameters of each. Default: of a grid, all."""
    parallel: WholeNumber = Field(default=4, ge=1, le=500)
    """The number of trials that run at a time, 1 to 500. Default: 4."""
    objective: Objective | None = Field(default=None, examples=[{"metric": "validation_loss", "goal": "minimize"}])
    """The goal of the search. tpe, asha and stop need it. Default: none, no trial is the best."""
    stop: StopRule | None = Field(default=None, examples=[{"patience": 5}])
    """When a trial is stopped before its end. Default: never."""
    asha: Asha | None = Field(default=None, examples=[{"min_steps": 100, "max_steps": 2700}])
    """The steps of asha. Needed by it, and by it alone."""
    seed: WholeNumber = Field(default=0, ge=0, le=2**32 - 1)
    """The source of random choices. The same seed chooses the same trials. Default: 0."""
    notify_trials: bool = Field(default=False, strict=True)
    """True lets each trial send the notifications that `notify` lists, beside the sweep. Default: false."""

    @property
    def listed(self) -> tuple[dict[str, ParameterValue], ...]:
        """The parameters of each trial, where the document lists them."""
        return () if isinstance(self.trials, int) or self.trials is None else self.trials

    def listed_begins(self, *, begun: int) -> list[Begin]:
        """Return the trials of a list that come after those that were begun.

        Args:
            begun: The number of trials that were begun.
        """
        return [
            Begin(number=number, parameters=parameters)
            for number, parameters in enumerate(self.listed[begun:], start=begun + 1)
        ]

    @property
    def plan(self) -> SearchPlan | None:
        """The plan that the search follows. None where the document lists the trials."""
        if self.parameters is None or self.search is None:
            return None
        return SearchPlan(
            space=self.parameters,
            search=self.search,
            trials=self.trials if isinstance(self.trials, int) else self.parameters.size or MAX_TRIALS,
            seed=self.seed,
            goal=None if self.objective is None else self.objective.goal,
            min_steps=None if self.asha is None else self.asha.min_steps,
            max_steps=None if self.asha is None else self.asha.max_steps,
            reduction_factor=3 if self.asha is None else self.asha.reduction_factor,
        )

    @property
    def most_trials(self) -> int:
        """The most trials that there can be."""
        plan = self.plan
        return len(self.listed) if plan is None else plan.trials


class _Document(DocumentModel):
    """The part of a document that is judged here."""

    model_config = ConfigDict(extra="ignore")
    sweep: SweepRequest
    max_cost: UsDollars | None = Field(default=None, examples=[40])
    """US dollars that all trials together may cost. When they are spent, the trials that run save and are stopped."""


_WORDING: Final = Wording(
    other_names={
        "method": "search",
        "strategy": "search",
        "sampler": "search",
        "space": "parameters",
        "searchspace": "parameters",
        "name": "metric",
        "metric": "objective",
        "runcap": "trials",
        "count": "trials",
        "numtrials": "trials",
        "ntrials": "trials",
        "maxtrials": "trials",
        "concurrency": "parallel",
        "maxconcurrenttrials": "parallel",
        "maxparalleltrainingjobs": "parallel",
        "earlyterminate": "stop",
        "earlystopping": "stop",
    }
)
"""Words of Weights & Biases, Optuna, Ray Tune and SageMaker's tuner for the same fields."""


def read_sweep(document: Mapping[str, Any], *, tpe: bool) -> tuple[SweepRequest | None, list[Problem]]:
    """Read the sweep of a document.

    Args:
        document: A job document with `sweep`.
        tpe: True if the deployment has the function that tpe searches with.

    Returns:
        The request, None where it cannot be read. And its problems, alone and with the fields beside it.
    """
    try:
        request = _Document.model_validate(document).sweep
    except ValidationError as error:
        return None, problems_of(error, _Document, document=document, wording=_WORDING)
    return request, [
        *_what_does_not_fit(request, tpe=tpe),
        *_what_a_template_may_not_say(document, request),
        *_what_is_too_large(document, request),
    ]


def _what_does_not_fit(request: SweepRequest, *, tpe: bool) -> list[Problem]:
    problems = []

    def wrong_field(field: str, found: object, problem: str, fix: str) -> None:
        found = "nothing" if found is None else shown(found)
        problems.append(Problem(field=f"sweep.{field}", found=found, problem=problem, fix=fix))

    if request.listed:
        for field in ("parameters", "search", "asha"):
            if (given := getattr(request, field)) is not None:
                wrong_field(field, given, "is given beside a list of trials", "Remove it, or write trials as a number.")
    elif request.parameters is None:
        wrong_field("parameters", None, "is needed: there is nothing to search", "Write what each parameter may be.")
    elif request.search is None:
        wrong_field("search", None, "is needed with parameters", "Choose grid, random, sobol, tpe or asha.")
    elif request.trials is None and request.parameters.size is None:
        wrong_field("trials", None, "is needed: there are more values than can be tried", "Write how many trials.")
    elif request.most_trials > (most := MOST_TRIALS_OF_TPE if request.search == "tpe" else MAX_TRIALS):
        wrong_field("trials", request.most_trials, f"is more than {request.search} takes", f"Write at most {most}.")
    if request.search == "grid" and request.parameters is not None and request.parameters.size is None:
        wrong_field("search", request.search, "cannot try ranges of real numbers", "List values, or choose sobol.")
    if request.search in {"tpe", "asha"} and request.objective is None:
        fix = "Write {metric: validation_loss, goal: minimize}."
        wrong_field("objective", None, f"is needed by {request.search}", fix)
    if request.stop is not None and request.objective is None:
        wrong_field("objective", None, "is needed by stop", "Write {metric: validation_loss, goal: minimize}.")
    if request.search == "asha" and request.asha is None:
        wrong_field("asha", None, "is needed by this search", "Write {min_steps: 100, max_steps: 2700}.")
    if request.asha is not None and not request.listed:
        if request.search != "asha":
            wrong_field("asha", request.asha, "is of the search asha alone", "Remove it, or write search: asha.")
        elif request.asha.max_steps < request.asha.min_steps:
            wrong_field("asha.max_steps", request.asha.max_steps, "is below min_steps", "Exchange the two.")
        if request.stop is not None:
            wrong_field("stop", request.stop, "does not go with asha, which stops trials itself", "Remove it.")
    if request.search == "tpe" and not tpe:
        fix = "Choose random or sobol, or have the setting tpe_search switched on."
        wrong_field("search", "tpe", "needs a function that this deployment does not have", fix)
    return problems


def recorded_document(document: Mapping[str, Any], request: SweepRequest) -> dict[str, Any]:
    """Return a document as it is recorded, with its sweep as it was read.

    Args:
        document: A job document with `sweep`.
        request: Its sweep.
    """
    return {**document, "sweep": request.model_dump(mode="json", exclude_none=True)}


def _what_is_too_large(document: Mapping[str, Any], request: SweepRequest) -> Iterator[Problem]:
    """Yield the parts of a document that are too large for their records.

    The record of a sweep holds its document with each trial that it lists. The record of a trial holds its parameters.
    """
    fix = "List fewer trials, or write parameters and a search in their place."
    if not request.listed:
        fix = "List fewer values, or write a range; put long texts into a file of the source."
    yield from too_large(recorded_document(document, request), most=MAX_SWEEP_BYTES, record="a sweep's", fix=fix)
    trials = request.listed or ([] if request.parameters is None else [request.parameters.longest])
    longest = max(trials, key=json_bytes, default={})
    if (size := json_bytes(longest)) > MAX_PARAMETERS_BYTES:
        yield Problem(
            field="sweep.trials" if request.listed else "sweep.parameters",
            found=f"{len(longest)} parameters",
            problem=f"gives a trial {size:,} bytes of parameters as JSON, and a trial's record takes "
            f"{MAX_PARAMETERS_BYTES:,}",
            fix="Shorten the values: put long texts into a file of the source, and search its name.",
        )

    if request.search == "tpe" and request.most_trials * size > MAX_TPE_BYTES:
        yield Problem(
            field="sweep.trials",
            found=shown(request.most_trials),
            problem=f"is more than a search by tpe takes with {size:,} bytes of parameters in each",
            fix=f"Write at most {MAX_TPE_BYTES // size:,}, shorten the values, or choose random or sobol.",
        )


_OF_A_LAUNCH: Final = "is of a launch of several runs; a sweep has trials"
_OF_ONE_RUN: Final = "is of one run, and a sweep's trials begin and end at times of their own"


def _what_a_template_may_not_say(document: Mapping[str, Any], request: SweepRequest) -> list[Problem]:
    problems = []
    refused = {"runs": _OF_A_LAUNCH, "on_demand_base": _OF_A_LAUNCH, "deadline": _OF_ONE_RUN}
    if request.search == "asha":
        refused["pause_at_step"] = "is set by asha for each trial"
    for field, reason in refused.items():
        if document.get(field) is not None:
            problems.append(
                Problem(
                    field=field,
                    found=shown(document[field]),
                    problem=f"does not go with sweep: it {reason}",
                    fix="Remove it.",
                )
            )
    if document.get("backend") == "ec2" and document.get("max_cost") is not None:
        problem = "does not go with sweep and backend: ec2: what trials on fleets have cost is not counted together"
        fix = "Remove it, and bound each trial by max_run and max_price. Or remove backend: ec2."
        problems.append(Problem(field="max_cost", found=shown(document["max_cost"]), problem=problem, fix=fix))
    prefix = document.get("checkpoint_prefix")
    if isinstance(prefix, str) and "{index}" not in prefix:
        fix = "Remove it: each trial has one of its own. Or write {index} in it."
        problems.append(
            Problem(field="checkpoint_prefix", found=shown(prefix), problem="would be the same for all trials", fix=fix)
        )
    run = document.get("run")
    longest = MAX_RUN_ID_LENGTH - 1 - len(str(request.most_trials))
    if isinstance(run, str) and len(run) > longest:
        problem = f"has {len(run)} characters; with a trial's number behind it {longest} fit"
        problems.append(Problem(field="run", found=shown(run), problem=problem, fix="Shorten it."))
    return problems


def sweep_warnings(
    request: SweepRequest,
    *,
    trials: Collection[JobRequest],
    max_cost: float | None,
    prices: Mapping[str, float],
) -> Iterator[str]:
    """Yield the reasons for which a search by asha probably does not end as it is meant.

    Args:
        request: The sweep.
        trials: The requests of its first trials.
        max_cost: The US dollars that all trials may cost. None without a bound.
        prices: On-demand US dollars per instance and hour, by instance type.
    """
    plan = request.plan
    if plan is None or not plan.rungs or request.asha is None or request.objective is None:
        return
    name = request.objective.metric
    if any((metric := each.metrics.get(name)) is not None and metric.pattern and not metric.step for each in trials):
        yield (
            f"metrics.{name} is found in the script's lines, without a step. asha pauses a trial only where its script "
            "counts steps with Spotkeep's library or an adapter. A script that only prints trains every trial to its "
            "end."
        )
    yield from _without_a_whole_training(plan, max_steps=request.asha.max_steps)
    yield from _too_dear_for_a_whole_training(plan, request.asha, trials=trials, max_cost=max_cost, prices=prices)


def _without_a_whole_training(plan: SearchPlan, *, max_steps: int) -> Iterator[str]:
    count = min(plan.trials, plan.space.size or plan.trials)
    needed, reached, furthest = plan.reduction_factor ** len(plan.rungs), count, 0
    for steps in plan.rungs:
        furthest = steps if reached else furthest
        reached //= plan.reduction_factor
    if not reached:
        yield (
            f"asha trains none of {count:,} trials for max_steps ({max_steps:,} steps). The best of them pause at step "
            f"{furthest:,}. Give {needed:,} trials or more, or a larger min_steps. Or let the best one go on after the "
            "sweep: spotkeep resume with the best trial's run and --set pause_at_step="
        )


def _too_dear_for_a_whole_training(
    plan: SearchPlan,
    asha: Asha,
    *,
    trials: Collection[JobRequest],
    max_cost: float | None,
    prices: Mapping[str, float],
) -> Iterator[str]:
    """Yield the sum that asha costs until the first trial is trained to its end, where `work` says how long that is."""
    if max_cost is None:
        return
    steps = [0, *plan.rungs, asha.max_steps]
    counts = [plan.reduction_factor**power for power in range(len(plan.rungs), -1, -1)]
    share = sum(count * (after - before) for count, before, after in zip(counts, steps, steps[1:], strict=False))
    dearest = max((usd_per_second(each, prices=prices) * (each.work or 0) for each in trials), default=0.0)
    usd = dearest * share / asha.max_steps
    if usd > max_cost:
        yield (
            f"max_cost {max_cost:,.2f} does not pay for a whole training: until asha trains its first trial for "
            f"max_steps, the trials cost about {usd:,.2f} USD on demand (work). Raise max_cost to that, or choose a "
            "larger reduction_factor or fewer steps. Spot costs less."
        )
