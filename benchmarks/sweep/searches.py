"""The searches that are compared, and the benchmark on which they search.

All searches have one interface, which gives the next trial and the trial that goes on. Optuna's and Syne Tune's asha
stop. A trial that is not among the best at a step of comparison ends for good. Spotkeep's asha promotes. There such a
trial pauses, and may go on later.

The benchmark is a table with the validation loss of many configurations of one network after each epoch. The network is
scikit-learn's, on its digits. It is small enough to train all configurations here, once. A search then reads the table.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, Self

import numpy as np
import optuna
from numpy.typing import NDArray

from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.sweeps.search.search import Begin, SearchPlan, TrialResult, next_moves
from spotkeep_jobs.sweeps.space import Space

CONFIGURATIONS: Final = 100
EPOCHS: Final = 27
_SEED: Final = 20_261_125
_DIVERGED: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class LossTable:
    """The losses that a search would observe.

    Attributes:
        losses: A row for each configuration, a column for each epoch.
    """

    losses: NDArray[np.float64]

    @property
    def best(self) -> float:
        """The lowest loss of all."""
        return float(self.losses.min())

    def objective(self, *, one_of: int) -> float:
        """Return the loss that one of so many configurations comes to.

        Args:
            one_of: Number of configurations.
        """
        return float(np.quantile(self.losses.min(axis=1), 1 / one_of))

    @classmethod
    def kept(cls, path: Path, *, progress: Callable[[int], None]) -> Self:
        """Return the table that is kept in a file. Trains all configurations where there is none yet.

        Args:
            path: The file.
            progress: Is called with the number of configurations that were trained.
        """
        if not path.exists():
            losses = []
            for number in range(CONFIGURATIONS):
                losses.append(_trained(number))
                progress(number + 1)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps([[round(loss, 5) for loss in row] for row in losses]))
        return cls(losses=np.array(json.loads(path.read_text())))


def _trained(number: int) -> list[float]:
    """Train one configuration. Return its validation loss after each epoch."""
    # Here, because it takes seconds, and most who import this module read a table that is kept.
    from sklearn.datasets import load_digits
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    draw = np.random.default_rng([_SEED, number])
    options: dict[str, Any] = {
        "hidden_layer_sizes": (int(2 ** draw.uniform(2, 7)),),
        "learning_rate_init": float(10 ** draw.uniform(-4, 0)),
        "alpha": float(10 ** draw.uniform(-6, 0)),
        "batch_size": int(2 ** draw.integers(5, 9)),
        "momentum": float(draw.uniform(0, 0.99)),
    }
    images, digits = load_digits(return_X_y=True)
    train, validation, train_digits, validation_digits = train_test_split(
        images / 16, digits, test_size=0.6, random_state=0, stratify=digits
    )
    network = MLPClassifier(solver="sgd", random_state=number, **options)
    losses = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Some of them diverge, which is what a search is to find out.
        warnings.simplefilter("ignore")
        for _ in range(EPOCHS):
            try:
                network.partial_fit(train, train_digits, classes=np.arange(10))
                loss = float(log_loss(validation_digits, network.predict_proba(validation), labels=np.arange(10)))
            except ValueError:
                loss = _DIVERGED
            losses.append(min(loss, _DIVERGED) if np.isfinite(loss) else _DIVERGED)
    return losses


SYNE_TUNE: Final = ("syne-tune==0.16.0", "dill==0.4.1", "sortedcontainers==2.4.0")
REDUCTION_FACTOR: Final = 3
_LAST: Final = CONFIGURATIONS - 1


@dataclass(frozen=True, kw_only=True)
class Job:
    """A stretch of a trial's training.

    Attributes:
        trial: The trial.
        configuration: Its row in the table.
        begins_at: Number of epochs that it has done before.
    """

    trial: int
    configuration: int
    begins_at: int = 0


class Search(Protocol):
    """One search, from its beginning."""

    def next_job(self) -> Job | None:
        """Return the job for a free worker, or None while there is none."""

    def goes_on(self, job: Job, *, epoch: int, loss: float) -> bool:
        """Take the loss after an epoch. Return True when the job goes on, if its training is not over."""


class Ours:
    """The moves of the launcher's search, on records as the run table would hold them."""

    def __init__(self, name: Literal["random", "asha"], seed: int) -> None:
        space = Space.model_validate({"configuration": {"int_uniform": [0, _LAST]}})
        self._plan = SearchPlan(
            space=space, search=name, trials=CONFIGURATIONS, seed=seed, goal="minimize", min_steps=1,
            max_steps=EPOCHS, reduction_factor=REDUCTION_FACTOR,
        )  # fmt: skip
        self._trials: dict[int, TrialResult] = {}
        self._pauses: dict[int, int | None] = {}

    def next_job(self) -> Job | None:
        """See `Search`."""
        moves = next_moves(self._plan, trials=list(self._trials.values()), free=1)
        if not moves:
            return None
        [move] = moves
        if isinstance(move, Begin):
            parameters, values = dict(move.parameters), {}
        else:
            trial = self._trials[move.number]
            parameters, values = dict(trial.parameters), dict(trial.values)
        self._record(move.number, parameters, TrialState.RUNNING, values)
        self._pauses[move.number] = move.pause_at_step
        return Job(trial=move.number, configuration=int(parameters["configuration"]), begins_at=max(values, default=0))

    def goes_on(self, job: Job, *, epoch: int, loss: float) -> bool:
        """See `Search`."""
        trial = self._trials[job.trial]
        if epoch == self._pauses[job.trial]:
            self._record(job.trial, trial.parameters, TrialState.PAUSED, {**trial.values, epoch: loss})
            return False
        if epoch == EPOCHS:
            self._record(job.trial, trial.parameters, TrialState.COMPLETED, trial.values)
        return True

    def _record(
        self, number: int, parameters: Mapping[str, Any], state: TrialState, values: Mapping[int, float]
    ) -> None:
        self._trials[number] = TrialResult(number=number, parameters=parameters, state=state, values=values)


class Optuna:
    """A study in memory, with its pruner of successive halving or with none."""

    def __init__(self, name: Literal["random", "asha"], seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        halving = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION_FACTOR)
        self._study = optuna.create_study(
            sampler=optuna.samplers.RandomSampler(seed=seed),
            pruner=halving if name == "asha" else optuna.pruners.NopPruner(),
        )
        self._trials: dict[int, optuna.Trial] = {}

    def next_job(self) -> Job | None:
        """See `Search`."""
        trial = self._study.ask()
        self._trials[trial.number] = trial
        return Job(trial=trial.number, configuration=trial.suggest_int("configuration", 0, _LAST))

    def goes_on(self, job: Job, *, epoch: int, loss: float) -> bool:
        """See `Search`."""
        trial = self._trials[job.trial]
        trial.report(loss, epoch)
        if epoch == EPOCHS:
            self._study.tell(trial, loss)
        elif trial.should_prune():
            self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return False
        return True


class SyneTune:
    """Syne Tune's scheduler, asked as its simulator asks it."""

    def __init__(self, name: Literal["random", "asha"], seed: int) -> None:
        logging.getLogger("syne_tune").setLevel(logging.ERROR)
        baselines: Any = import_module("syne_tune.optimizer.baselines")
        space = {"configuration": import_module("syne_tune.config_space").randint(0, _LAST)}
        self._status: Any = import_module("syne_tune.backend.trial_status")
        self._is_asha = name == "asha"
        self._scheduler = (
            baselines.ASHA(
                space, metric="loss", time_attr="epoch", max_t=EPOCHS, reduction_factor=REDUCTION_FACTOR,
                random_seed=seed,
            )
            if self._is_asha
            else baselines.RandomSearch(space, metrics=["loss"], random_seed=seed)
        )  # fmt: skip
        self._trials: dict[int, Any] = {}

    def next_job(self) -> Job | None:
        """See `Search`."""
        suggestion = self._scheduler.suggest()
        if suggestion is None:
            return None
        number = len(self._trials)
        trial = self._status.Trial(trial_id=number, config=suggestion.config, creation_time=datetime.now(UTC))
        self._trials[number] = trial
        self._scheduler.on_trial_add(trial)
        return Job(trial=number, configuration=int(suggestion.config["configuration"]))

    def goes_on(self, job: Job, *, epoch: int, loss: float) -> bool:
        """See `Search`."""
        trial, result = self._trials[job.trial], {"loss": loss, "epoch": epoch}
        if not self._is_asha and epoch == EPOCHS:
            self._scheduler.on_trial_complete(trial, result)
            return True
        return bool(self._scheduler.on_trial_result(trial, result) == "CONTINUE")


MAKERS: Final[Mapping[str, Callable[[Literal["random", "asha"], int], Search]]] = MappingProxyType(
    {"spotkeep": Ours, "Optuna": Optuna, "Syne Tune": SyneTune}
)


def missing() -> str | None:
    """Return the reason why Syne Tune is left out of the comparison, or None when it is not."""
    try:
        import_module("syne_tune.optimizer.baselines")
    except ImportError as error:
        return f"Syne Tune could not be installed or imported here ({error}); it is left out"
    return None


def main() -> int:
    """Install the packages of the comparison alone, away from the environment that the locks describe."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep.searches", description=main.__doc__)
    parser.add_argument("--install", type=Path, required=True, metavar="DIRECTORY")
    target = parser.parse_args().install
    sys.path.append(str(target))
    if missing() is not None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--target", str(target), *SYNE_TUNE], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
