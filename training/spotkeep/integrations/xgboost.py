"""XGBoost: `train` goes on with the rounds that an earlier attempt has not made, and ends with the same model.

XGBoost's generator of random numbers cannot be saved, and neither can what a booster keeps beside its trees. So where
parameters draw random numbers, a booster is made anew from its own bytes before each step, with a seed that follows
from the step: in a run that is left alone, too. Then a step after an interruption is the same as one without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.training_description import array_text

try:
    import numpy as np
    import xgboost
    from xgboost.callback import CallbackContainer, EarlyStopping, EvaluationMonitor, TrainingCheckPoint
except ImportError as error:
    raise ImportError(f"spotkeep.integrations.xgboost needs XGBoost: install 'xgboost>=2' ({error})") from error

_SAMPLING = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")
_SEED_STRIDE = 1_000_003
# What these callbacks keep from one round to the next. They have no way of their own to give it.
_KEPT = (
    (EarlyStopping, ("stopping_history", "current_rounds", "starting_round", "best_scores", "maximize")),
    (TrainingCheckPoint, ("_epoch", "_start")),
)


def train_resumably(
    params: Mapping[str, Any],
    dtrain: Any,
    num_boost_round: int = 10,
    *,
    evals: Sequence[tuple[Any, str]] | None = None,
    obj: Any = None,
    maximize: bool | None = None,
    early_stopping_rounds: int | None = None,
    evals_result: dict[str, Any] | None = None,
    verbose_eval: bool | int | None = True,
    callbacks: Sequence[Any] | None = None,
    custom_metric: Any = None,
    rounds_per_step: int = 50,
    state: Mapping[str, Any] | None = None,
    **checkpoints: Any,
) -> Any:
    """Call this instead of `xgboost.train(...)`: it goes on where an earlier attempt was interrupted.

    ```python
    booster = train_resumably({"max_depth": 6, "subsample": 0.8}, dtrain, 1000, evals=[(dval, "val")], every_steps=1)
    ```

    A step is `rounds_per_step` rounds. On a notice the state is saved after the current step and the script exits with
    code 75. Saved are the booster, the evaluations' history, and what the callbacks keep: EarlyStopping and
    TrainingCheckPoint, and any other that has `state_dict` and `load_state_dict`.

    Args:
        params: As for `xgboost.train`.
        dtrain: As for `xgboost.train`.
        num_boost_round: As for `xgboost.train`: rounds of the whole training, those of earlier attempts included.
        evals: As for `xgboost.train`.
        obj: As for `xgboost.train`.
        maximize: As for `xgboost.train`.
        early_stopping_rounds: As for `xgboost.train`.
        evals_result: As for `xgboost.train`.
        verbose_eval: As for `xgboost.train`.
        callbacks: As for `xgboost.train`.
        custom_metric: As for `xgboost.train`.
        rounds_per_step: Rounds of a step. Where random numbers are drawn (`subsample`, `colsample_*`, DART, `gblinear`)
            it is part of what the model depends on, and each step predicts the training data once.
        state: More to save, as for `Checkpointer`.
        **checkpoints: As for `Checkpointer`: `directory`, `every_steps`, `every_seconds`, ...

    Returns:
        The booster, as `xgboost.train` does.

    Raises:
        UsageError: `rounds_per_step` is no whole number from 1, or was another one in an earlier attempt.
        SystemExit: With code 75, after a notice; with 0, after the step to pause at.
    """
    if isinstance(rounds_per_step, bool) or not isinstance(rounds_per_step, int) or rounds_per_step < 1:
        raise UsageError(f"rounds_per_step must be a whole number from 1; it is {rounds_per_step!r}")
    used = list(callbacks or ())
    if verbose_eval:
        used.append(EvaluationMonitor(period=1 if verbose_eval is True else verbose_eval))
    if early_stopping_rounds:
        used.append(EarlyStopping(rounds=early_stopping_rounds, maximize=maximize))
    container = CallbackContainer(used, metric=custom_metric, output_margin=callable(obj))
    watched = list(evals or ())
    training = _Training(container, rounds_per_step=rounds_per_step)
    anew = _draws_random_numbers(params)
    seed = int(params.get("seed", params.get("random_state", 0)) or 0)

    def made(step: int) -> Any:
        of_step = {**params, "seed": (seed + step * _SEED_STRIDE) % 2**31} if anew else dict(params)
        return xgboost.Booster(of_step, [dtrain, *(data for data, _ in watched)], model_file=training.model)

    checkpointer = Checkpointer({**(state or {}), "training": training}, **checkpoints)
    rows = {"shape": (dtrain.num_row(), dtrain.num_col()), "labels": array_text(dtrain.get_label())}
    checkpointer.describe(
        data=rows, num_boost_round=num_boost_round, **{f"params {name}": params[name] for name in params}
    )
    with checkpointer:
        booster = container.before_training(made(checkpointer.step))
        training.take_back()
        for step in checkpointer.steps(-(-num_boost_round // rounds_per_step)):
            if training.stopped:
                break
            if anew:
                booster = made(step)
            for round_number in range(training.rounds, min(training.rounds + rounds_per_step, num_boost_round)):
                if container.before_iteration(booster, round_number, dtrain, watched):
                    training.stopped = True
                    break
                booster.update(dtrain, iteration=round_number, fobj=obj)
                training.rounds = round_number + 1
                if container.after_iteration(booster, round_number, dtrain, watched):
                    training.stopped = True
                    break
            training.model = booster.save_raw("ubj")
            checkpointer.log(**_last(container.history))
    booster = container.after_training(booster)
    if evals_result is not None:
        evals_result.update(container.history)
    return booster.reset()


class _Training:
    """What a training has made so far, as a part of the state.

    Attributes:
        rounds: How many rounds are done.
        stopped: Whether a callback has ended the training.
        model: The booster's own bytes, in UBJSON; None before the first step.
    """

    def __init__(self, container: Any, *, rounds_per_step: int) -> None:
        self.rounds = 0
        self.stopped = False
        self.model: bytearray | None = None
        self._container = container
        self._rounds_per_step = rounds_per_step
        self._kept: list[dict[str, Any]] | None = None

    def state_dict(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "rounds per step": self._rounds_per_step,
            "stopped": self.stopped,
            "model": np.frombuffer(self.model or b"", dtype=np.uint8),
            "history": _plain(self._container.history),
            "callbacks": [_state_of(callback) for callback in self._container.callbacks],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["rounds per step"] != self._rounds_per_step:
            raise UsageError(
                f"the checkpoint was made with rounds_per_step={state['rounds per step']}, and here it is "
                f"{self._rounds_per_step}; keep it for the whole run"
            )
        if len(state["callbacks"]) != len(self._container.callbacks):
            raise ValueError(
                f"{len(state['callbacks'])} callbacks were saved, and there are {len(self._container.callbacks)} here"
            )
        self.rounds, self.stopped = state["rounds"], state["stopped"]
        self.model = bytearray(state["model"].tobytes()) or None
        self._container.history.update(state["history"])
        self._kept = state["callbacks"]

    def take_back(self) -> None:
        """Give the callbacks what they kept, after they have begun: EarlyStopping begins by forgetting it."""
        if self._kept is not None:
            for callback, kept in zip(self._container.callbacks, self._kept):
                if _has_state(callback):
                    callback.load_state_dict(kept)
                else:
                    vars(callback).update(kept)


def _draws_random_numbers(params: Mapping[str, Any]) -> bool:
    if params.get("booster", "gbtree") != "gbtree" or params.get("sampling_method", "uniform") != "uniform":
        return True
    return any(float(params.get(name, 1)) < 1 for name in _SAMPLING)


def _state_of(callback: Any) -> dict[str, Any]:
    if _has_state(callback):
        return dict(callback.state_dict())
    names = next((names for kind, names in _KEPT if isinstance(callback, kind)), ())
    return {name: _plain(getattr(callback, name)) for name in names if hasattr(callback, name)}


def _has_state(callback: Any) -> bool:
    return callable(getattr(callback, "state_dict", None)) and callable(getattr(callback, "load_state_dict", None))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _last(history: Mapping[str, Mapping[str, Sequence[Any]]]) -> dict[str, float]:
    """Give the last value of each evaluation as `<data>-<metric>`, as XGBoost prints it."""
    return {
        f"{data}-{metric}": float(values[-1][0] if isinstance(values[-1], tuple) else values[-1])
        for data, log in history.items()
        for metric, values in log.items()
        if values
    }
