"""CatBoost, interrupted again and again, ends with the model of one `fit` that was left alone."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest

catboost = pytest.importorskip("catboost")

from spotkeep import UsageError  # noqa: E402
from spotkeep.integrations.catboost import train_resumably  # noqa: E402

pytestmark = [pytest.mark.boosters, pytest.mark.long]

ROUNDS = 8
ROUNDS_PER_STEP = 3
ROWS = np.random.default_rng(0).normal(size=(300, 6))
ROWS[np.random.default_rng(1).random(ROWS.shape) < 0.05] = np.nan
VALUES = np.nan_to_num(ROWS) @ np.arange(1, 7) + np.random.default_rng(2).normal(size=300)
KINDS = np.random.default_rng(3).integers(0, 20, size=(300, 2)).astype(str)
TRAINED, WATCHED = slice(0, 200), slice(200, 300)

MODELS = {
    "its defaults": (catboost.CatBoostRegressor, {}),
    "ordered": (catboost.CatBoostRegressor, {"boosting_type": "Ordered", "random_strength": 5}),
    "rows and columns are sampled": (
        catboost.CatBoostRegressor, {"bootstrap_type": "Bernoulli", "subsample": 0.5, "rsm": 0.5}
    ),
    "several classes and categories": (
        catboost.CatBoostClassifier, {"loss_function": "MultiClass", "custom_metric": ["Accuracy"], "cat": True}
    ),
    "absolute error": (catboost.CatBoost, {"loss_function": "MAE", "bootstrap_type": "Bayesian"}),
    "noise": (catboost.CatBoostRegressor, {"langevin": True, "grow_policy": "Lossguide"}),
    "no files of its own": (catboost.CatBoostRegressor, {"allow_writing_files": False, "n_estimators": ROUNDS}),
    "a part of the rows is watched": (catboost.CatBoostRegressor, {"eval_fraction": 0.2}),
}  # fmt: skip


class Stops:
    """Ends the training after a round: at once, or by a notice."""

    def __init__(self, after=-1, how=""):
        self.after, self.how = after, how

    def after_iteration(self, info):
        if info.iteration == self.after + 1:
            if self.how == "notice":
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                raise KeyError("killed")
        return True


@pytest.fixture
def boosted(tmp_path):
    def train(kind, directory=None, *callbacks, cat=False, **params):
        y = np.digitize(VALUES, [-3, 3]) if cat else VALUES
        x = np.hstack([np.round(ROWS, 1).astype(str), KINDS]) if cat else ROWS
        rounds = {} if "n_estimators" in params else {"iterations": ROUNDS}
        folder = {} if "allow_writing_files" in params else {"train_dir": str(tmp_path / f"info of {directory}")}
        given = {"thread_count": 1, "verbose": False, **rounds, **folder, **params}
        model = kind(given) if kind is catboost.CatBoost else kind(**given)
        pools = [catboost.Pool(x[part], y[part], cat_features=[6, 7] if cat else None) for part in (TRAINED, WATCHED)]
        watched = {} if "eval_fraction" in params else {"eval_set": pools[1]}
        own_params = model.get_params()
        if directory is None:
            assert model.fit(pools[0], **watched) is model
        else:
            options = {"rounds_per_step": ROUNDS_PER_STEP, "directory": tmp_path / directory, "every_steps": 1}
            assert train_resumably(model, pools[0], callbacks=callbacks, **watched, **options) is model
        assert model.get_params() == own_params
        return trees(model, tmp_path), model.evals_result_, model.best_iteration_, model.predict(x[WATCHED]).tobytes()

    return train


def trees(model, folder):
    model.save_model(str(folder / "model.json"), format="json")
    written = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    return {name: written[name] for name in written if name != "model_info"}  # a GUID, and a time


@pytest.mark.parametrize(("kind", "params"), MODELS.values(), ids=MODELS)
def test_interrupted_again_and_again_it_is_the_model_of_one_fit(kind, params, boosted, a_few_of):
    alone = boosted(kind, **params)
    for in_second_step in a_few_of(range(ROUNDS_PER_STEP, 2 * ROUNDS_PER_STEP), 1):
        directory = str(in_second_step)
        for after in (ROUNDS_PER_STEP - 1, in_second_step, ROUNDS - 1):
            with pytest.raises(catboost.CatBoostError, match="after_iteration"):
                boosted(kind, directory, Stops(after, "kill"), **params)
            if after < ROUNDS - 1:
                with pytest.raises(SystemExit) as ended:
                    boosted(kind, directory, Stops(after, "notice"), **params)
                assert ended.value.code == 75
        assert boosted(kind, directory, Stops(ROUNDS - 1, "notice"), **params) == alone  # No step follows: it ends.
        assert boosted(kind, directory, Stops(), **params) == alone  # It has ended, and is given again.


def test_early_stopping_counts_over_the_interruption(boosted, a_few_of):
    params = {"learning_rate": 1.0, "depth": 8, "early_stopping_rounds": 3, "iterations": 40}
    alone = boosted(catboost.CatBoostRegressor, **params)
    rounds = len(alone[1]["validation"]["RMSE"])
    assert alone[2] + 4 == rounds < 40
    for after in a_few_of(range(rounds), 3):
        with pytest.raises(catboost.CatBoostError, match="after_iteration"):
            boosted(catboost.CatBoostRegressor, str(after), Stops(after), **params)
        for _ in ("goes on", "stays stopped"):
            assert boosted(catboost.CatBoostRegressor, str(after), Stops(), **params) == alone


class CountsToFive:
    """Ends the training by itself after the fifth round, in whichever process that is."""

    def __init__(self):
        self.rounds = 0

    def after_iteration(self, info):
        self.rounds += 1
        return self.rounds < 5

    def state_dict(self):
        return {"rounds": self.rounds}

    def load_state_dict(self, state):
        self.rounds = state["rounds"]


def test_a_callback_that_ends_the_training_has_ended_it_for_good(boosted, caplog):
    boosted(catboost.CatBoostRegressor, "alone", CountsToFive())
    with pytest.raises(catboost.CatBoostError, match="after_iteration"):
        boosted(catboost.CatBoostRegressor, "cut", Stops(3), CountsToFive())
    made = [boosted(catboost.CatBoostRegressor, "cut", Stops(), CountsToFive()) for _ in ("goes on", "stays stopped")]
    assert made[0] == made[1] == boosted(catboost.CatBoostRegressor, "alone", CountsToFive())
    assert len(made[0][1]["learn"]["RMSE"]) == 5
    assert "the callback Stops keeps is not saved" in caplog.text
    assert "CountsToFive" not in caplog.text


def test_another_learning_rate_is_named_in_the_log_and_other_trees_are_refused(boosted, caplog):
    for changed in ({"learning_rate": 0.5}, {"depth": 3}):
        directory = str(*changed)
        with pytest.raises(catboost.CatBoostError, match="after_iteration"):
            boosted(catboost.CatBoostRegressor, directory, Stops(4), learning_rate=0.1, depth=4)
        if "depth" in changed:
            with pytest.raises(catboost.CatBoostError, match="params differ from the params saved in snapshot"):
                boosted(catboost.CatBoostRegressor, directory, Stops(), **{"learning_rate": 0.1, **changed})
        else:
            boosted(catboost.CatBoostRegressor, directory, Stops(), **{"depth": 4, **changed})
    assert "params learning_rate was 0.1 and is 0.5" in caplog.text
    assert "params depth was 4 and is 3" in caplog.text
    assert "thread_count" not in caplog.text


def test_what_cannot_be_continued_is_refused_all_at_once(tmp_path):
    model = catboost.CatBoostRegressor(task_type="GPU", save_snapshot=True)
    with pytest.raises(UsageError) as refused:
        train_resumably(model, ROWS, VALUES, snapshot_file="mine", rounds_per_step=0, directory=tmp_path)
    for part in ("rounds_per_step", "save_snapshot is", "snapshot_file is", "task_type='GPU'"):
        assert part in str(refused.value)


def test_another_length_of_steps_is_refused(boosted, tmp_path):
    boosted(catboost.CatBoostRegressor, "one")
    with pytest.raises(UsageError, match="rounds_per_step=3, and here it is 4"):
        train_resumably(
            catboost.CatBoostRegressor(iterations=ROUNDS, train_dir=tmp_path / "info"), ROWS, VALUES,
            rounds_per_step=4, directory=tmp_path / "one",
        )  # fmt: skip
