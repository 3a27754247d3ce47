"""LightGBM's `train`, which goes on with the remaining rounds after an interruption and ends with the same model.

Some state of a booster beside its trees cannot be saved, such as scores and generators of random numbers. So each step
continues from the model's text, as LightGBM does with `init_model`, and with seeds that depend on the step. An
uninterrupted run does the same, so a step after an interruption equals one without. LightGBM would forget two things
there, which are kept here. They are the `init_score` of a Dataset and the parameters that a callback has set in the
booster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.state.restoring import warn_of_taken_names
from spotkeep.training_description import array_text

from .callback_states import has_state, require_same_form, warn_of_what_is_not_saved

try:
    import lightgbm
    import numpy as np
    from lightgbm import callback as known
except ImportError as error:
    raise ImportError(f"spotkeep.integrations.lightgbm needs LightGBM: install 'lightgbm>=4' ({error})") from error

_SEEDS = ("bagging_seed", "feature_fraction_seed", "extra_seed", "objective_seed")
_SEED_STRIDE = 1_000_003
_YES = (True, "true", "+", 1, "1")
# A random forest takes no model to continue from; the next three change or round what a continued model is made of; of
# the last two LightGBM counts which features it has paid for, and no model holds that.
_REFUSED: Mapping[str, tuple[Any, ...] | None] = {
    "boosting": ("rf", "random_forest", "dart"),
    "linear_tree": _YES,
    "use_quantized_grad": _YES,
    "cegb_penalty_feature_lazy": None,
    "cegb_penalty_feature_coupled": None,
}
_KEPT = {
    known._EarlyStoppingCallback: ("best_score", "best_iter", "first_metric", "enabled"),
    known._RecordEvaluationCallback: ("eval_result",),
}
_STATELESS = (known._LogEvaluationCallback, known._ResetParameterCallback)


def train_resumably(
    params: Mapping[str, Any],
    train_set: Any,
    num_boost_round: int = 100,
    *,
    valid_sets: Any = None,
    valid_names: Sequence[str] | None = None,
    feval: Any = None,
    callbacks: Sequence[Any] | None = None,
    rounds_per_step: int = 50,
    state: Mapping[str, Any] | None = None,
    **checkpoints: Any,
) -> Any:
    """Call this instead of `lightgbm.train(...)`. It goes on where an earlier attempt was interrupted.

    ```python
    train_set = lightgbm.Dataset(x, y, free_raw_data=False)
    booster = train_resumably(params, train_set, 1000, valid_sets=[val], callbacks=[early_stopping(20)], every_steps=1)
    ```

    A step is `rounds_per_step` rounds. On a notice the state is saved after the current step and the script exits with
    code 75. The state holds the model, the parameters that callbacks set in it, and the states of callbacks. These
    callbacks are `early_stopping`, `record_evaluation`, and each callback with `state_dict` and `load_state_dict`.

    Args:
        params: As for `lightgbm.train`, but for the number of rounds and early stopping, which are arguments and
            callbacks here.
        train_set: As for `lightgbm.train`, with `free_raw_data=False`, because each step predicts it once.
        num_boost_round: As for `lightgbm.train`, the rounds of the whole training, those of earlier attempts included.
        valid_sets: As for `lightgbm.train`, one or several, each with `free_raw_data=False`.
        valid_names: As for `lightgbm.train`.
        feval: As for `lightgbm.train`.
        callbacks: As for `lightgbm.train`.
        rounds_per_step: Rounds of a step. The model depends on it.
        state: More to save, as for `Checkpointer`.
        **checkpoints: As for `Checkpointer`, such as `directory`, `every_steps` and `every_seconds`.

    Returns:
        The booster, as `lightgbm.train` does.

    Raises:
        UsageError: A parameter or a dataset cannot be continued. The message names each.
        SystemExit: With code 75 after a notice, and with 0 after the step to pause at.
    """
    watched = [valid_sets] if isinstance(valid_sets, lightgbm.Dataset) else valid_sets or []
    sets = [train_set, *watched]
    if problems := _problems(params, sets, rounds_per_step):
        raise UsageError("; ".join(problems))
    warn_of_what_is_not_saved(callbacks or (), known=(*_KEPT, *_STATELESS))
    seed = int(params.get("seed", params.get("random_state", 0)) or 0)
    set_by_callbacks: dict[str, Any] = {}
    used = [_Continued(each, num_boost_round, set_by_callbacks) for each in callbacks or ()]
    training = _Training(used, set_by_callbacks, rounds_per_step=rounds_per_step)
    booster = None
    warn_of_taken_names(state or (), taken=("training",))
    checkpointer = Checkpointer({**(state or {}), "training": training}, **checkpoints)
    data = {"features": array_text(train_set.data), "labels": array_text(train_set.label)}
    checkpointer.describe(
        data=data, num_boost_round=num_boost_round, **{f"params {name}": params[name] for name in params}
    )
    with ExitStack() as stack:
        for each in {id(each): each for each in sets}.values():
            stack.enter_context(_with_its_score(each))
        stack.enter_context(checkpointer)
        for step in checkpointer.steps(-(-num_boost_round // rounds_per_step)):
            if training.stopped:
                break
            rounds = min(rounds_per_step, num_boost_round - training.rounds)
            of_step = {name: (seed + step * _SEED_STRIDE + number) % 2**31 for number, name in enumerate(_SEEDS)}
            booster = lightgbm.train(
                {**params, **set_by_callbacks, **of_step},
                train_set,
                rounds,
                valid_sets=valid_sets,
                valid_names=valid_names,
                feval=feval,
                init_model=None if training.model is None else _booster(training.model),
                callbacks=used,
            )
            training.take(booster, rounds=rounds)
            checkpointer.log(**{f"{data}-{metric}": value for data, metric, value in _scores(booster)})
    if booster is None:
        booster = _booster(training.model or "")
        booster.best_iteration = training.best_iteration
    return booster


@contextmanager
def _with_its_score(dataset: Any) -> Iterator[None]:
    """Let a Dataset keep its `init_score` when a training continues from a model, which would replace it.

    LightGBM has no way of its own for that. Afterwards the Dataset is unchanged and ready for another training.
    """
    own: list[Any] = []
    replace = dataset._set_init_score_by_predictor

    def add(predictor: Any, data: Any, used_indices: Any) -> Any:
        if not own:
            if dataset.init_score is not None:
                dataset.set_init_score(dataset.init_score)
            own.append(dataset.get_field("init_score"))
        replace(predictor=predictor, data=data, used_indices=used_indices)
        if own[0] is not None:
            dataset.set_init_score(own[0] + dataset.get_field("init_score"))
        return dataset

    dataset._set_init_score_by_predictor = add
    try:
        yield
    finally:
        del dataset._set_init_score_by_predictor
        dataset._predictor = None
        if own:
            dataset.set_field("init_score", own[0])
            dataset.init_score = own[0]


class _Training:
    """The training so far, as a part of the state.

    Attributes:
        rounds: The number of completed rounds.
        stopped: A callback has ended the training.
        best_iteration: The best round by early stopping, else 0.
        model: All trees, as LightGBM writes them. None before the first step.
    """

    def __init__(
        self, callbacks: Sequence[_Continued], set_by_callbacks: dict[str, Any], *, rounds_per_step: int
    ) -> None:
        self.rounds = 0
        self.stopped = False
        self.best_iteration = 0
        self.model: str | None = None
        self._callbacks = callbacks
        self._set_by_callbacks = set_by_callbacks
        self._rounds_per_step = rounds_per_step

    def take(self, booster: Any, *, rounds: int) -> None:
        made = booster.current_iteration()
        self.best_iteration = max(0, booster.best_iteration)
        self.stopped = self.best_iteration > 0 or made < self.rounds + rounds
        self.rounds = made
        self.model = booster.model_to_string(num_iteration=-1)

    def state_dict(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "rounds per step": self._rounds_per_step,
            "stopped": self.stopped,
            "best iteration": self.best_iteration,
            "set by callbacks": dict(self._set_by_callbacks),
            "model": np.frombuffer((self.model or "").encode(), dtype=np.uint8),
            "callbacks": [callback.kept() for callback in self._callbacks],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        require_same_form(state, rounds_per_step=self._rounds_per_step, callbacks=len(self._callbacks))
        self.rounds, self.stopped = state["rounds"], state["stopped"]
        self.best_iteration = state["best iteration"]
        self._set_by_callbacks.update(state["set by callbacks"])
        self.model = state["model"].tobytes().decode() or None
        for callback, kept in zip(self._callbacks, state["callbacks"]):
            callback.take_back(kept)


class _Continued:
    """A callback that sees one training where LightGBM makes one after the other.

    Args:
        callback: The user's.
        rounds: The rounds of the whole training.
        noted: A dictionary for the parameters that it sets.
    """

    def __init__(self, callback: Any, rounds: int, noted: dict[str, Any]) -> None:
        self._callback = callback
        self._rounds = rounds
        self._noted = noted
        self._resumed: dict[str, Any] | None = None
        self.before_iteration = getattr(callback, "before_iteration", False)
        if hasattr(callback, "order"):
            self.order = callback.order

    def __call__(self, env: Any) -> None:
        env = type(env)(**{**_fields(env), "begin_iteration": 0, "end_iteration": self._rounds})
        if self._resumed is not None:
            resumed, self._resumed = self._resumed, None
            self._callback._init(env)  # It knows from a round's evaluations what is better.
            kind = type(env.evaluation_result_list[0])
            best = [[kind(**each) for each in scores] for scores in resumed["best_score_list"]]
            vars(self._callback).update({**resumed, "best_score_list": best})
        before = {**env.params, **env.model.params}
        self._callback(env)
        after = {**env.params, **env.model.params}
        self._noted.update({name: _plain(after[name]) for name in after if after[name] != before.get(name)})

    def kept(self) -> dict[str, Any]:
        """Give the callback's state in plain values."""
        if self._resumed is not None:
            return self._resumed
        if has_state(self._callback):
            return dict(self._callback.state_dict())
        names = next((names for kind, names in _KEPT.items() if isinstance(self._callback, kind)), ())
        kept = {name: _plain(getattr(self._callback, name)) for name in names}
        if isinstance(self._callback, known._EarlyStoppingCallback):
            kept["best_score_list"] = [[_fields(each) for each in best] for best in self._callback.best_score_list]
        return kept

    def take_back(self, kept: dict[str, Any]) -> None:
        """Take the state that `kept` gave.

        Early stopping gets it at its first call, because it begins by forgetting it.
        """
        if has_state(self._callback):
            self._callback.load_state_dict(kept)
        elif isinstance(self._callback, known._EarlyStoppingCallback):
            self._resumed = kept
        elif isinstance(self._callback, known._RecordEvaluationCallback):
            self._callback.eval_result.update(kept["eval_result"])  # The dictionary is the user's.


def _fields(value: Any) -> dict[str, Any]:
    """Give the fields of one of LightGBM's records, which is a dataclass, and a named tuple in earlier versions."""
    fields: dict[str, Any] = value._asdict() if hasattr(value, "_asdict") else dict(vars(value))
    return fields


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _booster(model: str) -> Any:
    return lightgbm.Booster(model_str=model)


def _scores(booster: Any) -> list[tuple[str, str, float]]:
    return [
        (data, metric, float(value)) for data, scores in booster.best_score.items() for metric, value in scores.items()
    ]


def _problems(params: Mapping[str, Any], sets: Sequence[Any], rounds_per_step: object) -> list[str]:
    problems = []
    if isinstance(rounds_per_step, bool) or not isinstance(rounds_per_step, int) or rounds_per_step < 1:
        problems.append(f"rounds_per_step must be a whole number from 1; it is {rounds_per_step!r}")
    aliases = lightgbm.basic._ConfigAliases
    problems += [
        f"{name}={params[name]!r} cannot be continued to the same bits; leave it out"
        for parameter, refused in _REFUSED.items()
        for name in sorted(aliases.get(parameter))
        if name in params and (refused is None or params[name] in refused)
    ]
    problems += [
        f"{name} in the parameters is not read: give num_boost_round, and early_stopping(...) in callbacks"
        for name in sorted(aliases.get("num_iterations") | aliases.get("early_stopping_round"))
        if name in params
    ]
    if any(each.position is not None for each in sets):
        problems.append(
            "a Dataset has positions: LightGBM keeps the position biases that it estimates in no model, so a training "
            "cannot be continued to the same bits; leave them out"
        )
    if any(each._predictor is not None for each in sets):
        # It gives no way back: the model's scores stand where the Dataset's own ones were.
        problems.append(
            "a Dataset was trained on with init_model, and LightGBM keeps the scores of that model in it: this "
            "training would begin from them, and its model would lack them; make a new Dataset"
        )
    if any(each.free_raw_data for each in sets):
        problems.append("each Dataset needs free_raw_data=False: a step continues from a prediction of it")
    return problems
