"""The search function. The launcher asks it for the next trials of a sweep by TPE.

It knows no run and makes no call to AWS, since its event has everything. An event that it cannot read raises, for only
the launcher invokes it, and both are deployed together.

TPE is Optuna's ask and tell, on a study that is built from the trials' records each time. A trial's parameters follow
from the records, the seed and the trial's number. Running trials count as bad ones that are known already (the constant
liar), so trials that begin at the same time are not alike.

Sources:
    Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011
    Ginsbourger, Le Riche and Carraro, "Kriging is well-suited to parallelize optimization", 2010 (the constant liar)
    https://optuna.readthedocs.io/en/stable/reference/samplers/generated/optuna.samplers.TPESampler.html
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import optuna
from aws_lambda_powertools import Logger
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as StudyTrialState

from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.record.sweep import ParameterValue
from spotkeep_jobs.sweeps.search.search import Begin, random_combinations
from spotkeep_jobs.sweeps.search.tpe_request import MOST_AT_ONCE, ReportedTrial, TpeAnswer, TpeRequest
from spotkeep_jobs.sweeps.space import DiscreteParameter, Parameter, Space

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_MOST_ASKED: Final = 20
"""The most times that a study is asked for an untried trial. A nearly exhausted space gives the same trials again."""


def chosen_trials(request: TpeRequest) -> list[Begin]:
    """Return the trials that begin now.

    Args:
        request: The trials so far, and the number of further ones that may run.

    Returns:
        At most `free` trials, and at most `MOST_AT_ONCE`, none of which was tried. Fewer where there are no more.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    begun = {trial.number: trial for trial in request.begun}
    chosen: list[Begin] = []
    study: optuna.Study | None = None
    for number in range(1, request.trials + 1):
        if len(chosen) >= min(request.free, MOST_AT_ONCE) or len(begun) == request.space.size:
            break
        if number in begun:
            study = None  # Trials are in a study in the order of their numbers.
            continue
        if study is None:
            study = _study(request, [begun[each] for each in sorted(begun)])
        parameters = _next_parameters(study, request, number=number, begun=begun.values())
        chosen.append(Begin(number=number, parameters=parameters))
        begun[number] = ReportedTrial(number=number, parameters=parameters, state=TrialState.RUNNING)
        study.add_trial(_recorded(begun[number], _distributions(request.space)))
    return chosen


def _study(request: TpeRequest, begun: Sequence[ReportedTrial]) -> optuna.Study:
    study = optuna.create_study(
        direction=StudyDirection.MINIMIZE if request.goal == "minimize" else StudyDirection.MAXIMIZE
    )
    distributions = _distributions(request.space)
    study.add_trials([_recorded(trial, distributions) for trial in begun])
    return study


def _next_parameters(
    study: optuna.Study, request: TpeRequest, *, number: int, begun: Iterable[ReportedTrial]
) -> dict[str, ParameterValue]:
    space = request.space
    tried = {tuple(trial.parameters[name] for name in space.root) for trial in begun}
    study.sampler = TPESampler(seed=_seed(request.seed, number), constant_liar=True)
    distributions = _distributions(space)
    for _ in range(_MOST_ASKED):
        asked = study.ask(distributions)
        # The study goes on with what the trial gets, which is rounded.
        study.tell(asked, state=StudyTrialState.FAIL)
        parameters = {name: _value(parameter, asked.params[name]) for name, parameter in space.root.items()}
        if tuple(parameters.values()) not in tried:
            return parameters
    untried = (each for each in random_combinations(space, seed=request.seed) if tuple(each.values()) not in tried)
    return next(untried)


def _recorded(trial: ReportedTrial, distributions: dict[str, BaseDistribution]) -> FrozenTrial:
    """Return a trial as a study records it. One that has ended without a value adds nothing to the search."""
    if trial.state is TrialState.RUNNING:
        state, value = StudyTrialState.RUNNING, None
    elif trial.state is TrialState.FAILED or trial.value is None:
        state, value = StudyTrialState.FAIL, None
    else:
        state, value = StudyTrialState.COMPLETE, trial.value
    return create_trial(state=state, value=value, params=trial.parameters, distributions=distributions)


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    return {name: _distribution(parameter) for name, parameter in space.root.items()}


def _distribution(parameter: Parameter) -> BaseDistribution:
    if not isinstance(parameter, DiscreteParameter):
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    values = parameter.values
    if not isinstance(values, range):
        return CategoricalDistribution(values)
    low, high = min(values[0], values[-1]), max(values[0], values[-1])
    return IntDistribution(low, high, log=parameter.log, step=abs(values.step))


def _value(parameter: Parameter, asked: ParameterValue) -> ParameterValue:
    return asked if isinstance(parameter, DiscreteParameter) else parameter.rounded(float(asked))


def _seed(seed: int, number: int) -> int:
    """Return the seed of one trial's choice, of the 32 bits that NumPy takes."""
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:4], "big")


_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "search")

logger = Logger(service=_SERVICE)


@logger.inject_lambda_context(clear_state=True)
def handler(event: object, context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 -- Lambda passes it
    """Answer with the next trials.

    Args:
        event: A `TpeRequest`.
        context: Lambda's context.

    Returns:
        A `TpeAnswer`.

    Raises:
        pydantic.ValidationError: The event is no such request.
    """
    request = TpeRequest.model_validate(event)
    answer = TpeAnswer(chosen=tuple(chosen_trials(request)))
    logger.info("chose trials", begun=len(request.begun), free=request.free, chosen=len(answer.chosen))
    return answer.model_dump(mode="json")
