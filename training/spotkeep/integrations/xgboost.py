"""XGBoost's `train`, which goes on with the remaining rounds after an interruption and ends with the same model.

XGBoost's generator of random numbers cannot be saved, and neither can a booster's state beside its trees. So with
parameters that draw random numbers, each step makes a new booster from the bytes of the old one. Its seed depends on
the step. An uninterrupted run does the same, so a step after an interruption equals one without. Values that callbacks
set in a booster, such as a learning rate, are set in the new one again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.state.restoring import warn_of_taken_names
from spotkeep.training_description import array_text

from .callback_states import has_state, require_same_form, warn_of_what_is_not_saved

try:
    import numpy as np
    import xgboost
    from xgboost.callback import (
        CallbackContainer,
        EarlyStopping,
        EvaluationMonitor,
        LearningRateScheduler,
        TrainingCheckPoint,
    )
except ImportError as error:
    raise ImportError(f"spotkeep.integrations.xgboost needs XGBoost: install 'xgboost>=2' ({error})") from error

_SAMPLING = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")
_SEED_STRIDE = 1_000_003
# What these callbacks keep from one round to the next. They have no way of their own to give it.
_KEPT = (
    (EarlyStopping, ("stopping_history", "current_rounds", "starting_round", "best_scores", "maximize")),
    (TrainingCheckPoint, ("_epoch", "_start")),
)
_STATELESS = (EvaluationMonitor, LearningRateScheduler)


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
    """Call this instead of `xgboost.train(...)`. It goes on where an earlier attempt was interrupted.

    ```python
    booster = train_resumably({"max_depth": 6, "subsample": 0.8}, dtrain, 1000, evals=[(dval, "val")], every_steps=1)
    ```

    A step is `rounds_per_step` rounds. On a notice the state is saved after the current step and the script exits with
    code 75. The state holds the booster, the parameters that callbacks set in it (LearningRateScheduler), the
    evaluations' history, and the states of callbacks. These callbacks are EarlyStopping, TrainingCheckPoint, and each
    callback with `state_dict` and `load_state_dict`.

    Args:
        params: As for `xgboost.train`.
        dtrain: As for `xgboost.train`.
        num_boost_round: As for `xgboost.train`, the rounds of the whole training, those of earlier attempts included.
        evals: As for `xgboost.train`.
        obj: As for `xgboost.train`.
        maximize: As for `xgboost.train`.
        early_stopping_rounds: As for `xgboost.train`.
        evals_result: As for `xgboost.train`.
        verbose_eval: As for `xgboost.train`.
        callbacks: As for `xgboost.train`.
        custom_metric: As for `xgboost.train`.
        rounds_per_step: Rounds of a step. With random numbers (`subsample`, `colsample_*`, DART, `gblinear`) the model
            depends on it, and each step predicts the training data once.
        state: More to save, as for `Checkpointer`.
        **checkpoints: As for `Checkpointer`, such as `directory`, `every_steps` and `every_seconds`.

    Returns:
        The booster, as `xgboost.train` does.

    Raises:
        UsageError: `rounds_per_step` is no whole number from 1, or was another one in an earlier attempt. Or the
            parameters have `lambdarank_unbiased`, which no saved booster goes on with.
        SystemExit: With code 75 after a notice, and with 0 after the step to pause at.
    """
    if problems := _problems(params, rounds_per_step):
        raise UsageError("; ".join(problems))
    used = list(callbacks or ())
    warn_of_what_is_not_saved(used, known=(*(kind for kind, _ in _KEPT), *_STATELESS))
    if verbose_eval:
        used.append(EvaluationMonitor(period=1 if verbose_eval is True else verbose_eval))
    if early_stopping_rounds:
        used.append(EarlyStopping(rounds=early_stopping_rounds, maximize=maximize))
    container = CallbackContainer(used, metric=custom_metric, output_margin=callable(obj))
    watched = list(evals or ())
    training = _Training(container, rounds_per_step=rounds_per_step)
    seed = int(params.get("seed", params.get("random_state", 0)) or 0)

    def draws() -> bool:
        return _draws_random_numbers({**params, **training.set_by_callbacks})

    def made(step: int) -> Any:
        of_step = {**params, "seed": (seed + step * _SEED_STRIDE) % 2**31} if draws() else dict(params)
        booster = _NotedBooster(of_step, [dtrain, *(data for data, _ in watched)], model_file=training.model)
        booster.set_param(training.set_by_callbacks)
        booster.noted = training.set_by_callbacks
        return booster

    warn_of_taken_names(state or (), taken=("training",))
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
            if draws():
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
    if isinstance(booster, _NotedBooster):
        booster.end_notes()
    if evals_result is not None:
        evals_result.update(container.history)
    return booster.reset()


class _NotedBooster(xgboost.Booster):
    """A booster that notes the parameters that callbacks set in it during training. Its bytes do not hold them.

    Attributes:
        noted: The parameters, as texts. None while the booster is made.
    """

    noted: dict[str, str] | None = None

    def set_param(self, params: Any, value: Any = None) -> None:
        """Set parameters, in any of the forms that XGBoost takes, and note them."""
        pairs = [(params, value)] if isinstance(params, str) else list(dict(params).items())
        pairs = [(name, value.tolist() if hasattr(value, "tolist") else value) for name, value in pairs]
        super().set_param(pairs)
        if self.noted is not None:
            self.noted.update({name: str(value) for name, value in pairs if value is not None})

    def __reduce__(self) -> tuple[Any, ...]:
        # What a callback pickles is read by processes without this library.
        kept: Any = self.__getstate__()
        return xgboost.Booster, (), {name: value for name, value in kept.items() if name != "noted"}

    def end_notes(self) -> None:
        """Become a booster of XGBoost's own after the training."""
        del self.noted
        self.__class__ = xgboost.Booster


class _Training:
    """The training so far, as a part of the state.

    Attributes:
        rounds: The number of completed rounds.
        stopped: A callback has ended the training.
        set_by_callbacks: The parameters that callbacks set in the booster.
        model: The booster's own bytes, in UBJSON. None before the first step.
    """

    def __init__(self, container: Any, *, rounds_per_step: int) -> None:
        self.rounds = 0
        self.stopped = False
        self.set_by_callbacks: dict[str, str] = {}
        self.model: bytearray | None = None
        self._container = container
        self._rounds_per_step = rounds_per_step
        self._kept: list[dict[str, Any]] | None = None

    def state_dict(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "rounds per step": self._rounds_per_step,
            "stopped": self.stopped,
            "set by callbacks": dict(self.set_by_callbacks),
            "model": np.frombuffer(self.model or b"", dtype=np.uint8),
            "history": _plain(self._container.history),
            "callbacks": self._kept or [_state_of(callback) for callback in self._container.callbacks],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        require_same_form(state, rounds_per_step=self._rounds_per_step, callbacks=len(self._container.callbacks))
        self.rounds, self.stopped = state["rounds"], state["stopped"]
        self.set_by_callbacks = dict(state["set by callbacks"])
        self.model = bytearray(state["model"].tobytes()) or None
        self._container.history.update(state["history"])
        self._kept = state["callbacks"]

    def take_back(self) -> None:
        """Give the callbacks their states after they have begun, because EarlyStopping begins by forgetting its own."""
        kept, self._kept = self._kept, None
        for callback, state in zip(self._container.callbacks, kept or ()):
            if has_state(callback):
                callback.load_state_dict(state)
            else:
                vars(callback).update(state)


def _problems(params: Mapping[str, Any], rounds_per_step: object) -> list[str]:
    problems = []
    if isinstance(rounds_per_step, bool) or not isinstance(rounds_per_step, int) or rounds_per_step < 1:
        problems.append(f"rounds_per_step must be a whole number from 1; it is {rounds_per_step!r}")
    if str(params.get("lambdarank_unbiased", False)).lower() in ("true", "1"):
        problems.append(
            "lambdarank_unbiased is set: XGBoost saves the position biases that it estimates in no booster, so an "
            "interrupted training could not go on; leave it out, or train with xgboost.train on capacity that is not "
            "interrupted"
        )
    return problems


def _draws_random_numbers(params: Mapping[str, Any]) -> bool:
    if params.get("booster", "gbtree") != "gbtree" or params.get("sampling_method", "uniform") != "uniform":
        return True
    return any(float(params.get(name, 1)) < 1 for name in _SAMPLING)


def _state_of(callback: Any) -> dict[str, Any]:
    if has_state(callback):
        return dict(callback.state_dict())
    names = next((names for kind, names in _KEPT if isinstance(callback, kind)), ())
    return {name: _plain(getattr(callback, name)) for name in names if hasattr(callback, name)}


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
