"""CatBoost's `fit` with the rounds that an earlier attempt has not made. It ends with the same model.

CatBoost's own snapshot holds all that the next round follows from, its random numbers too. So each step is a `fit` that
begins from the snapshot of the step before. The model is the one of a single `fit`, whatever the steps are. CatBoost
checks that data and parameters are those of the snapshot, but for the learning rate and the number of rounds.

Source: https://catboost.ai/docs/en/features/snapshots
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.state.restoring import warn_of_taken_names
from spotkeep.training_description import array_text

from .callback_states import has_state, require_same_form, warn_of_what_is_not_saved

try:
    import catboost  # noqa: F401 - the models come from the script
    import numpy as np
except ImportError as error:
    raise ImportError(f"spotkeep.integrations.catboost needs CatBoost: install 'catboost>=1.2' ({error})") from error

_ROUNDS = ("iterations", "n_estimators", "num_boost_round", "num_trees")
_DEFAULT_ROUNDS = 1000
_OF_SNAPSHOTS = ("save_snapshot", "snapshot_file", "snapshot_interval")
_NEVER_SECONDS = 10**9
"""A snapshot is written when `fit` ends. Between its rounds none is needed."""
_OF_THE_PROCESS = ("train_dir", "thread_count", "plot", "plot_file", "log_cout", "log_cerr")
"""Parameters that may differ between two attempts, because no round depends on them."""


def train_resumably(
    model: Any,
    *data: Any,
    callbacks: Sequence[Any] | None = None,
    rounds_per_step: int = 50,
    state: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Call this instead of `model.fit(...)`. It goes on where an earlier attempt was interrupted.

    ```python
    model = CatBoostClassifier(iterations=1000, eval_metric="AUC")
    train_resumably(model, x, y, eval_set=(x_val, y_val), early_stopping_rounds=20, every_steps=1)
    ```

    A step is `rounds_per_step` rounds. On a notice the state is saved after the current step and the script exits with
    code 75. CatBoost's snapshot is saved, with the trees, random numbers, the history of the evaluations and the counts
    of early stopping. So are the states of callbacks with `state_dict` and `load_state_dict`. The model is that of
    `model.fit`.

    Args:
        model: A `CatBoost`, `CatBoostClassifier`, `CatBoostRegressor` or `CatBoostRanker`. It is trained in place.
        *data: As for `model.fit`. It is a Pool, or the features and the labels.
        callbacks: As for `model.fit`.
        rounds_per_step: Rounds of a step. Each begins by preparing the data again, unless it is a quantized Pool.
        state: More to save, as for `Checkpointer`.
        **options: As for `model.fit` and for `Checkpointer`, such as `eval_set`, `cat_features`,
            `early_stopping_rounds`, `directory`, `every_steps` and `every_seconds`.

    Returns:
        The model, as `model.fit` does.

    Raises:
        UsageError: A parameter is one that cannot be continued. Names every one.
        CatBoostError: As `model.fit`. Also where the data or the parameters are others than in an earlier attempt.
        SystemExit: With code 75, after a notice. With 0, after the step to pause at.
    """
    parameters = dict(model.get_params())
    ours = inspect.signature(Checkpointer).parameters
    checkpoints = {name: value for name, value in options.items() if name in ours}
    fitting = {name: value for name, value in options.items() if name not in ours}
    if problems := _problems({**parameters, **fitting}, rounds_per_step):
        raise UsageError("; ".join(problems))
    warn_of_what_is_not_saved(callbacks or (), known=())
    rounds = next((parameters[name] for name in _ROUNDS if parameters.get(name) is not None), _DEFAULT_ROUNDS)
    warn_of_taken_names(state or (), taken=("training",))
    with tempfile.TemporaryDirectory(prefix="spotkeep-catboost-") as folder:
        training = _Training(callbacks or (), Path(folder), rounds_per_step=rounds_per_step)
        checkpointer = Checkpointer({**(state or {}), "training": training}, **checkpoints)
        checkpointer.describe(**_described(data, {**parameters, **fitting}, rounds))
        with checkpointer, _that_may_write(model, folder):
            fitted = False
            for _ in checkpointer.steps(-(-rounds // rounds_per_step)):
                if training.stopped:
                    break
                training.fit(model, data, fitting, until=min(training.rounds + rounds_per_step, rounds))
                fitted = True
                checkpointer.log(**_last(model.evals_result_))
            if not fitted:
                # All rounds are in the snapshot: with as many as it has, CatBoost gives the model at once.
                with _that_has(model, {name: training.rounds for name in _ROUNDS if name in parameters}):
                    training.fit(model, data, fitting, until=training.rounds)
    return model


class _Training:
    """The progress of a training, as a part of the state, and the callback that ends each step.

    Args:
        callbacks: The user's.
        folder: The folder in which CatBoost writes and reads its snapshot.
        rounds_per_step: Rounds of a step.

    Attributes:
        rounds: The number of completed rounds.
        stopped: Early stopping or a callback has ended the training before its last round.
    """

    def __init__(self, callbacks: Sequence[Any], folder: Path, *, rounds_per_step: int) -> None:
        self.rounds = 0
        self.stopped = False
        self._callbacks = callbacks
        self._snapshot = folder / "snapshot"
        self._rounds_per_step = rounds_per_step
        self._until = 0

    def fit(self, model: Any, data: Sequence[Any], fitting: Mapping[str, Any], *, until: int) -> None:
        """Train to a round, which counts from the beginning of the whole training."""
        self._until = until
        model.fit(
            *data,
            **fitting,
            callbacks=[self],
            save_snapshot=True,
            snapshot_file=str(self._snapshot),
            snapshot_interval=_NEVER_SECONDS,
        )
        self.stopped |= self.rounds < until

    def after_iteration(self, info: Any) -> bool:
        """Tell CatBoost after each round if it goes on."""
        self.rounds = info.iteration
        if not all(callback.after_iteration(info) for callback in self._callbacks):
            self.stopped = True
        return not self.stopped and self.rounds < self._until

    def state_dict(self) -> dict[str, Any]:
        written = self._snapshot.exists()
        return {
            "rounds": self.rounds,
            "rounds per step": self._rounds_per_step,
            "stopped": self.stopped,
            "snapshot": np.fromfile(self._snapshot, dtype=np.uint8) if written else np.empty(0, dtype=np.uint8),
            "callbacks": [dict(each.state_dict()) if has_state(each) else {} for each in self._callbacks],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        require_same_form(state, rounds_per_step=self._rounds_per_step, callbacks=len(self._callbacks))
        self.rounds, self.stopped = state["rounds"], state["stopped"]
        if state["snapshot"].size:
            state["snapshot"].tofile(self._snapshot)
        for callback, kept in zip(self._callbacks, state["callbacks"]):
            if has_state(callback):
                callback.load_state_dict(kept)


@contextmanager
def _that_has(model: Any, parameters: Mapping[str, Any]) -> Iterator[None]:
    """Let a model have other parameters meanwhile. CatBoost has no way of its own for one that is fitted."""
    own = dict(model._init_params)
    model._init_params = {**own, **parameters}
    model._canonized_params = None  # CatBoost's own form of them
    try:
        yield
    finally:
        model._init_params = own
        model._canonized_params = None


@contextmanager
def _that_may_write(model: Any, folder: str) -> Iterator[None]:
    """Let a model write its snapshot into a folder of the library, although its parameters forbid all writes."""
    writes = model.get_param("allow_writing_files") in (None, True)
    with _that_has(model, {} if writes else {"allow_writing_files": True, "train_dir": os.fspath(folder)}):
        yield


def _problems(parameters: Mapping[str, Any], rounds_per_step: object) -> list[str]:
    problems = []
    if isinstance(rounds_per_step, bool) or not isinstance(rounds_per_step, int) or rounds_per_step < 1:
        problems.append(f"rounds_per_step must be a whole number from 1; it is {rounds_per_step!r}")
    problems += [
        f"{name} is CatBoost's own way to go on, and this one uses it for each step; leave it out"
        for name in _OF_SNAPSHOTS
        if parameters.get(name)
    ]
    if str(parameters.get("task_type", "CPU")).upper() != "CPU":
        problems.append(
            f"task_type={parameters['task_type']!r}: CatBoost calls no callbacks there, by which a step ends; use "
            "save_snapshot and snapshot_file of its own, with a file in SPOTKEEP_CHECKPOINT_DIR"
        )
    return problems


def _described(data: Sequence[Any], parameters: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    names = ("x", "y") if len(data) > 1 else ("data",)
    return {
        "data": {name: array_text(each) for name, each in zip(names, data)},
        "num_boost_round": rounds,
        **{
            f"params {name}": value
            for name, value in parameters.items()
            if name not in (*_ROUNDS, *_OF_THE_PROCESS) and _is_plain(value)
        },
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, (bool, int, float, str))


def _last(history: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Give the last value of each evaluation as `<data>-<metric>`."""
    return {
        f"{data}-{metric}": float(values[-1])
        for data, metrics in history.items()
        for metric, values in metrics.items()
        if values
    }
