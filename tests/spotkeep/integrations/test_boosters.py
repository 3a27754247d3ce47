"""XGBoost and LightGBM, interrupted again and again, end with the bits of a training that was left alone."""

from __future__ import annotations

import os
import re
import signal

import numpy as np
import pytest

xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")

from spotkeep import UsageError  # noqa: E402
from spotkeep.integrations import lightgbm as of_lightgbm  # noqa: E402
from spotkeep.integrations import xgboost as of_xgboost  # noqa: E402

pytestmark = [pytest.mark.boosters, pytest.mark.long]

ROUNDS = 8
ROUNDS_PER_STEP = 3
ROWS = np.random.default_rng(0).normal(size=(300, 6))
ROWS[np.random.default_rng(1).random(ROWS.shape) < 0.05] = np.nan
VALUES = np.nan_to_num(ROWS) @ np.arange(1, 7) + np.random.default_rng(2).normal(size=300)
TRAINED, WATCHED = slice(0, 200), slice(200, 300)


class KilledError(Exception):
    """What a SIGKILL leaves to the test: nothing after it happens."""


class StopsXgboost(xgboost.callback.TrainingCallback):
    """Ends the training after a round: at once, or by a notice."""

    def __init__(self, after, how):
        self.after, self.how = after, how

    def after_iteration(self, model, epoch, evals_log):
        if epoch == self.after:
            if self.how == "notice":
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                raise KilledError
        return False


XGBOOST = {
    "hist": {"max_depth": 3},
    "rows and columns are sampled": {"subsample": 0.5, "colsample_bytree": 0.5, "colsample_bynode": 0.7},
    "dart": {"booster": "dart", "rate_drop": 0.5, "one_drop": 1},
    "linear": {"booster": "gblinear", "updater": "coord_descent", "feature_selector": "shuffle"},
    "several classes": {
        "objective": "multi:softprob", "num_class": 3, "subsample": 0.6, "eval_metric": ["mlogloss", "merror"]
    },
    "absolute error": {"objective": "reg:absoluteerror", "tree_method": "approx"},
}  # fmt: skip


def labels(params):
    return np.digitize(VALUES, [-3, 3]) if params.get("num_class") else VALUES


def boosted_by_xgboost(params, directory, *extra, **options):
    y = labels(params)
    data = [xgboost.DMatrix(ROWS[part], y[part]) for part in (TRAINED, WATCHED)]
    history = {}
    booster = of_xgboost.train_resumably(
        {"nthread": 1, "seed": 5, **params}, data[0], ROUNDS, evals=[(data[1], "val")], verbose_eval=False,
        evals_result=history, rounds_per_step=ROUNDS_PER_STEP, callbacks=[*extra], directory=directory,
        every_steps=1, **options,
    )  # fmt: skip
    return bytes(booster.save_raw("json")), booster.predict(data[1]).tobytes(), history


class StopsLightgbm:
    """The same for LightGBM, before early stopping ends the last round."""

    order = 20

    def __init__(self, after, how):
        self.after, self.how = after, how

    def __call__(self, env):
        if env.iteration == self.after:
            if self.how == "notice":
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                raise KilledError


LIGHTGBM = {
    "plain": {},
    "rows and columns are sampled": {"bagging_fraction": 0.5, "bagging_freq": 2, "feature_fraction": 0.5},
    "one side": {"data_sample_strategy": "goss", "learning_rate": 0.5},
    "extra trees": {"extra_trees": True},
    "several classes": {"objective": "multiclass", "num_class": 3, "bagging_fraction": 0.6, "bagging_freq": 1},
    "absolute error": {"objective": "mae"},
}


def boosted_by_lightgbm(params, directory, *extra, **options):
    y = labels(params)
    train = lightgbm.Dataset(ROWS[TRAINED], y[TRAINED], free_raw_data=False)
    watched = lightgbm.Dataset(ROWS[WATCHED], y[WATCHED], reference=train, free_raw_data=False)
    history = {}
    booster = of_lightgbm.train_resumably(
        {"verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, "seed": 5, **params}, train, ROUNDS,
        valid_sets=[watched], valid_names=["val"], rounds_per_step=ROUNDS_PER_STEP, directory=directory, every_steps=1,
        callbacks=[lightgbm.early_stopping(20, verbose=False), lightgbm.record_evaluation(history), *extra], **options,
    )  # fmt: skip
    trees = re.sub(r"parameters:.*end of parameters", "", booster.model_to_string(num_iteration=-1), flags=re.DOTALL)
    return trees, booster.predict(ROWS[WATCHED]).tobytes(), history, booster.best_iteration


KINDS = [
    pytest.param(boosted, stops, params, id=f"{library} {name}")
    for library, boosted, stops, kinds in (
        ("XGBoost", boosted_by_xgboost, StopsXgboost, XGBOOST),
        ("LightGBM", boosted_by_lightgbm, StopsLightgbm, LIGHTGBM),
    )
    for name, params in kinds.items()
]


@pytest.mark.parametrize(("boosted", "stops", "params"), KINDS)
def test_interrupted_again_and_again_it_is_the_same_model(boosted, stops, params, tmp_path, a_few_of):
    alone = boosted(params, tmp_path / "alone", stops(-1, ""))
    for in_second_step in a_few_of(range(ROUNDS_PER_STEP, 2 * ROUNDS_PER_STEP), 1):
        directory = tmp_path / str(in_second_step)
        for after in (ROUNDS_PER_STEP - 1, in_second_step, ROUNDS - 1):
            with pytest.raises(KilledError):
                boosted(params, directory, stops(after, "kill"))
            if after < ROUNDS - 1:
                with pytest.raises(SystemExit) as ended:
                    boosted(params, directory, stops(after, "notice"))
                assert ended.value.code == 75
        assert boosted(params, directory, stops(ROUNDS - 1, "notice")) == alone  # No step follows: it ends.
        assert boosted(params, directory, stops(-1, "")) == alone  # It has ended, and is given again.


def test_early_stopping_of_xgboost_counts_over_the_interruption(tmp_path, a_few_of):
    params = {"learning_rate": 1.5, "max_depth": 6, "subsample": 0.5}
    options = {"early_stopping_rounds": 4}
    alone = boosted_by_xgboost(params, tmp_path / "alone", StopsXgboost(-1, ""), **options)
    rounds = len(alone[2]["val"]["rmse"])
    assert rounds < ROUNDS
    for after in a_few_of(range(rounds - 1), 2):
        with pytest.raises(KilledError):
            boosted_by_xgboost(params, tmp_path / str(after), StopsXgboost(after, ""), **options)
        for _ in ("goes on", "stays stopped"):
            assert boosted_by_xgboost(params, tmp_path / str(after), StopsXgboost(-1, ""), **options) == alone


def test_early_stopping_of_lightgbm_counts_over_the_interruption(tmp_path, a_few_of):
    def boosted(directory, after):
        train = lightgbm.Dataset(ROWS[TRAINED], VALUES[TRAINED], free_raw_data=False)
        watched = lightgbm.Dataset(ROWS[WATCHED], VALUES[WATCHED], reference=train, free_raw_data=False)
        booster = of_lightgbm.train_resumably(
            {"verbose": -1, "num_threads": 1, "learning_rate": 1.9, "min_data_in_leaf": 2}, train, 30,
            valid_sets=[watched], rounds_per_step=3, directory=directory, every_steps=1,
            callbacks=[lightgbm.early_stopping(5, verbose=False), StopsLightgbm(after, "")],
        )  # fmt: skip
        return booster.best_iteration, booster.current_iteration(), booster.predict(ROWS).tobytes()

    best, rounds, _ = alone = boosted(tmp_path / "alone", -1)
    assert 0 < best == rounds < 25  # LightGBM gives the trees up to the best round.
    for after in a_few_of(range(best + 4), 3):
        with pytest.raises(KilledError):
            boosted(tmp_path / str(after), after)
        for _ in ("goes on", "stays stopped"):
            assert boosted(tmp_path / str(after), -1) == alone


def test_a_custom_objective_and_metric_go_on(tmp_path):
    def squared(predicted, data):
        return predicted - data.get_label(), np.ones_like(predicted)

    def furthest(predicted, data):
        return "furthest", float(np.abs(predicted - data.get_label()).max())

    options = {"obj": squared, "custom_metric": furthest}
    alone = boosted_by_xgboost({}, tmp_path / "alone", StopsXgboost(-1, ""), **options)
    assert "furthest" in alone[2]["val"]
    with pytest.raises(KilledError):
        boosted_by_xgboost({}, tmp_path / "cut", StopsXgboost(4, ""), **options)
    assert boosted_by_xgboost({}, tmp_path / "cut", StopsXgboost(-1, ""), **options) == alone


def test_another_length_of_steps_is_refused(tmp_path):
    data = xgboost.DMatrix(ROWS, VALUES)
    of_xgboost.train_resumably({}, data, 4, rounds_per_step=2, verbose_eval=False, directory=tmp_path, every_steps=1)
    with pytest.raises(UsageError, match="rounds_per_step=2, and here it is 3"):
        of_xgboost.train_resumably(
            {}, data, 6, rounds_per_step=3, verbose_eval=False, directory=tmp_path, every_steps=1
        )


def test_what_lightgbm_cannot_continue_is_refused_all_at_once(tmp_path):
    with pytest.raises(UsageError) as refused:
        of_lightgbm.train_resumably(
            {"boosting": "rf", "linear_tree": True, "num_iterations": 5},
            lightgbm.Dataset(ROWS, VALUES), rounds_per_step=0, directory=tmp_path,
        )  # fmt: skip
    for part in ("rounds_per_step", "boosting='rf'", "linear_tree", "num_iterations", "free_raw_data=False"):
        assert part in str(refused.value)


def test_one_dataset_to_watch_needs_no_list_as_with_lightgbm_itself(tmp_path):
    train = lightgbm.Dataset(ROWS[TRAINED], VALUES[TRAINED], free_raw_data=False)
    watched = lightgbm.Dataset(ROWS[WATCHED], VALUES[WATCHED], reference=train, free_raw_data=False)
    history = {}
    of_lightgbm.train_resumably(
        {"verbose": -1, "num_threads": 1}, train, 4, valid_sets=watched, valid_names="val", rounds_per_step=2,
        callbacks=[lightgbm.record_evaluation(history)], directory=tmp_path, every_steps=1,
    )  # fmt: skip
    assert len(history["val"]["l2"]) == 4
    with pytest.raises(UsageError, match="free_raw_data=False"):
        of_lightgbm.train_resumably({}, train, 4, valid_sets=lightgbm.Dataset(ROWS, VALUES), directory=tmp_path)


@pytest.mark.parametrize(
    ("boosted", "stops", "sampled"),
    [
        (boosted_by_xgboost, StopsXgboost, {"subsample": 0.5}),
        (boosted_by_lightgbm, StopsLightgbm, {"bagging_fraction": 0.5, "bagging_freq": 1}),
    ],
    ids=["XGBoost", "LightGBM"],
)
def test_a_second_training_of_the_process_has_a_name_or_is_refused(
    boosted, stops, sampled, tmp_path, new_process, caplog
):
    seeds = [{**sampled, "seed": seed} for seed in (1, 2)]
    alone = [boosted(params, tmp_path / str(params["seed"]), stops(-1, "")) for params in seeds]
    boosted(seeds[0], tmp_path / "one", stops(-1, ""))
    with pytest.raises(UsageError, match="ended in this process, after step 3"):
        boosted(seeds[1], tmp_path / "one", stops(-1, ""))
    boosted(seeds[0], tmp_path / "named", stops(-1, ""), name="seed-0")
    with pytest.raises(KilledError):
        boosted(seeds[1], tmp_path / "named", stops(ROUNDS - 1, "kill"), name="seed-1")
    new_process()
    assert caplog.text == ""
    again = [boosted(params, tmp_path / "named", stops(-1, ""), name=f"seed-{n}") for n, params in enumerate(seeds)]
    assert again == alone
    assert caplog.text == ""
    new_process()
    boosted(seeds[1], tmp_path / "named", stops(-1, ""), name="seed-0")
    assert "params seed was 1 and is 2" in caplog.text
