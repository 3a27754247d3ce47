"""XGBoost and LightGBM, interrupted again and again, end with the bits of a training that was left alone."""

from __future__ import annotations

import os
import pickle
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


class CountsRounds:
    """A callback of a script's own, for either library, that halves the learning rate once, in its sixth round."""

    order = 5

    def __init__(self):
        self.rounds = 0

    def __call__(self, env):
        self.rounds += 1
        if self.rounds == 6:
            env.model.reset_parameter({"learning_rate": env.model.params["learning_rate"] / 2})

    def state_dict(self):
        return {"rounds": self.rounds}

    def load_state_dict(self, state):
        self.rounds = state["rounds"]


class CountsRoundsOfXgboost(xgboost.callback.TrainingCallback):
    def __init__(self):
        self.counts = CountsRounds()

    def after_iteration(self, model, epoch, evals_log):
        self.counts.rounds += 1
        if self.counts.rounds == 6:
            model.set_param({"learning_rate": 0.15})
        return False

    def state_dict(self):
        return self.counts.state_dict()

    def load_state_dict(self, state):
        self.counts.load_state_dict(state)


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


def heights(booster):
    """The largest leaf of each round's tree, to the digits that XGBoost and LightGBM keep whatever the steps are."""
    table = booster.trees_to_dataframe()
    tree, value = ("Tree", "Gain") if "Gain" in table else ("tree_index", "value")
    leaves = table[table["Feature"] == "Leaf"] if "Gain" in table else table[table["left_child"].isna()]
    return leaves[value].abs().groupby(leaves[tree]).max().to_numpy()


@pytest.mark.parametrize("params", [{}, {"subsample": 0.999}], ids=["whole", "sampled"])
def test_a_learning_rate_that_callbacks_set_holds_over_steps_and_interruptions(params, tmp_path):
    def scheduled(directory, how, after=-1):
        data = xgboost.DMatrix(ROWS, VALUES)
        schedule = xgboost.callback.LearningRateScheduler(lambda done: 0.3 * 0.5 ** (done + 1))
        common = {"nthread": 1, "learning_rate": 0.3, **params}
        if how == "without":
            return xgboost.train(common, data, ROUNDS, callbacks=[schedule, CountsRoundsOfXgboost()])
        return of_xgboost.train_resumably(
            common, data, ROUNDS, callbacks=[schedule, CountsRoundsOfXgboost(), StopsXgboost(after, how)],
            rounds_per_step=ROUNDS_PER_STEP, verbose_eval=False, directory=directory, every_steps=1,
        )  # fmt: skip

    alone = scheduled(tmp_path / "alone", "")
    # With the rate of `params` the first trees of later steps would be eight times as high.
    assert heights(alone) == pytest.approx(heights(scheduled(None, "without")), rel=0.5)
    with pytest.raises(KilledError):
        scheduled(tmp_path / "cut", "kill", 4)
    with pytest.raises(SystemExit):
        scheduled(tmp_path / "cut", "notice", 4)
    assert scheduled(tmp_path / "cut", "").save_raw("json") == alone.save_raw("json")
    assert type(pickle.loads(pickle.dumps(alone))) is xgboost.Booster  # noqa: S301 - its own bytes


def test_a_schedule_of_lightgbm_counts_from_the_first_round_of_the_training(tmp_path):
    def asked_for(directory, after=-1):
        asked = []

        def rate(number):
            asked.append(number)
            return 0.3 * 0.5**number

        data = lightgbm.Dataset(ROWS, VALUES, free_raw_data=False)
        callbacks = [lightgbm.reset_parameter(learning_rate=rate), StopsLightgbm(after, "kill")]
        of_lightgbm.train_resumably(
            {"verbose": -1, "num_threads": 1}, data, ROUNDS, callbacks=callbacks, rounds_per_step=ROUNDS_PER_STEP,
            directory=directory, every_steps=1,
        )  # fmt: skip
        return asked

    assert asked_for(tmp_path / "alone") == list(range(ROUNDS))
    with pytest.raises(KilledError):
        asked_for(tmp_path / "cut", 4)
    assert asked_for(tmp_path / "cut") == list(range(ROUNDS_PER_STEP, ROUNDS))


def test_lightgbm_keeps_a_parameter_that_a_callback_set_once(tmp_path):
    def counted(directory, after=-1):
        train = lightgbm.Dataset(ROWS, VALUES, free_raw_data=False)
        common = {"verbose": -1, "num_threads": 1, "learning_rate": 0.3}
        if directory is None:
            return lightgbm.train(common, train, ROUNDS, callbacks=[CountsRounds()])
        return of_lightgbm.train_resumably(
            common, train, ROUNDS, callbacks=[CountsRounds(), StopsLightgbm(after, "")],
            rounds_per_step=ROUNDS_PER_STEP, directory=directory, every_steps=1,
        )  # fmt: skip

    alone = counted(tmp_path / "alone")
    assert heights(alone)[1:] == pytest.approx(heights(counted(None))[1:])
    with pytest.raises(KilledError):
        counted(tmp_path / "cut", after=ROUNDS - 1)
    assert counted(tmp_path / "cut").predict(ROWS).tobytes() == alone.predict(ROWS).tobytes()


@pytest.mark.parametrize("params", [{}, {"objective": "multiclass", "num_class": 3}], ids=["one score", "by class"])
def test_scores_to_begin_with_stay_under_what_lightgbm_learns(params, tmp_path):
    classes = params.get("num_class", 1)
    score = np.random.default_rng(3).normal(size=(300, classes)) * 10
    label = np.digitize(VALUES, [-3, 3]) if params else VALUES + score[:, 0]

    def datasets():
        whole = lightgbm.Dataset(ROWS, label, init_score=score if params else score[:, 0], free_raw_data=False)
        train = whole.subset(np.arange(200))
        watched = lightgbm.Dataset(
            ROWS[WATCHED], label[WATCHED], init_score=(score if params else score[:, 0])[WATCHED], reference=train,
            free_raw_data=False,
        )  # fmt: skip
        train.free_raw_data = False
        return train, watched

    def boosted(sets, directory, after=-1):
        history = {}
        options = {
            "num_boost_round": ROUNDS, "valid_sets": [*sets], "valid_names": ["train", "val"],
            "callbacks": [lightgbm.record_evaluation(history), StopsLightgbm(after, "")],
        }  # fmt: skip
        common = {"verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, **params}
        if directory is None:
            lightgbm.train(common, sets[0], **options)
            return history
        of_lightgbm.train_resumably(
            common, sets[0], rounds_per_step=ROUNDS_PER_STEP, directory=directory, every_steps=1, **options
        )
        return history

    def losses(history):
        return [loss for data in history.values() for metric in data.values() for loss in metric]

    sets = datasets()
    alone = boosted(sets, tmp_path / "alone")
    assert losses(alone) == pytest.approx(losses(boosted(datasets(), None)))
    with pytest.raises(KilledError):
        boosted(datasets(), tmp_path / "cut", after=4)
    assert boosted(datasets(), tmp_path / "cut") == alone
    # The datasets are as they were: a training of other seeds may come next.
    assert boosted(sets, tmp_path / "next") == alone


def test_margins_to_begin_with_stay_under_what_xgboost_learns(tmp_path):
    def boosted(directory, after=-1):
        data = xgboost.DMatrix(ROWS, VALUES, base_margin=VALUES * 0.9)
        return of_xgboost.train_resumably(
            {"nthread": 1}, data, ROUNDS, callbacks=[StopsXgboost(after, "")], verbose_eval=False,
            rounds_per_step=ROUNDS_PER_STEP, directory=directory, every_steps=1,
        ).predict(data)  # fmt: skip

    alone = boosted(tmp_path / "alone")
    assert np.abs(alone - VALUES).mean() < 0.2
    with pytest.raises(KilledError):
        boosted(tmp_path / "cut", after=4)
    assert np.array_equal(boosted(tmp_path / "cut"), alone)


def test_a_callback_that_may_keep_something_unsaved_is_named_in_the_log(tmp_path, caplog):
    class KeepsTheBest(xgboost.callback.TrainingCallback):
        def __init__(self):
            self.best = None

    losses = []

    def keeps_losses(env):
        losses.append(env.iteration)

    def prints(env):
        """Keep nothing."""

    of_xgboost.train_resumably(
        {}, xgboost.DMatrix(ROWS, VALUES), 2, callbacks=[KeepsTheBest(), CountsRoundsOfXgboost()],
        directory=tmp_path / "xgboost", every_steps=1,
    )  # fmt: skip
    of_lightgbm.train_resumably(
        {"verbose": -1}, lightgbm.Dataset(ROWS, VALUES, free_raw_data=False), 2,
        callbacks=[keeps_losses, prints, lightgbm.log_evaluation(), CountsRounds()],
        directory=tmp_path / "lightgbm", every_steps=1,
    )  # fmt: skip
    named = [record.getMessage() for record in caplog.records if "is not saved" in record.getMessage()]
    assert [re.search(r"(KeepsTheBest|keeps_losses)", message)[0] for message in named] == [
        "KeepsTheBest", "keeps_losses"
    ]  # fmt: skip


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


@pytest.mark.parametrize("boosted", [boosted_by_xgboost, boosted_by_lightgbm])
def test_a_name_that_is_taken_is_warned_of(boosted, tmp_path, caplog):
    boosted({}, tmp_path, state={"training": {}, "seen": {}})
    assert caplog.text.count("the state has 'training', under which the integration saves") == 1


def test_position_biases_which_no_booster_holds_are_refused_before_the_first_round(tmp_path):
    with pytest.raises(UsageError, match="lambdarank_unbiased"):
        of_xgboost.train_resumably(
            {"objective": "rank:ndcg", "lambdarank_unbiased": True}, xgboost.DMatrix(ROWS, VALUES), directory=tmp_path
        )
    ranked = lightgbm.Dataset(
        ROWS, VALUES > 0, group=[100] * 3, position=np.tile(np.arange(100), 3), free_raw_data=False
    )
    with pytest.raises(UsageError, match="has positions"):
        of_lightgbm.train_resumably({"objective": "lambdarank"}, ranked, directory=tmp_path)


def test_what_lightgbm_cannot_continue_is_refused_all_at_once(tmp_path):
    with pytest.raises(UsageError) as refused:
        of_lightgbm.train_resumably(
            {"boosting": "rf", "linear_tree": True, "num_iterations": 5, "cegb_penalty_feature_lazy": [1.0] * 6},
            lightgbm.Dataset(ROWS, VALUES), rounds_per_step=0, directory=tmp_path,
        )  # fmt: skip
    for part in (
        "rounds_per_step",
        "boosting='rf'",
        "linear_tree",
        "cegb_penalty",
        "num_iterations",
        "free_raw_data=False",
    ):
        assert part in str(refused.value)


def test_a_dataset_that_begins_from_the_scores_of_another_training_is_refused(tmp_path):
    def datasets():
        train = lightgbm.Dataset(ROWS[TRAINED], VALUES[TRAINED], free_raw_data=False)
        return train, lightgbm.Dataset(ROWS[WATCHED], VALUES[WATCHED], reference=train, free_raw_data=False)

    params = {"verbose": -1, "num_threads": 1}
    first = lightgbm.train(params, datasets()[0], 2)
    train, watched = datasets()
    lightgbm.train(params, train, 2, valid_sets=[watched], init_model=first)
    for sets in ((train, datasets()[1]), (datasets()[0], watched), (train.subset(range(100)), datasets()[1])):
        sets[0].free_raw_data = False
        with pytest.raises(UsageError, match=r"init_model.*make a new Dataset"):
            of_lightgbm.train_resumably(params, sets[0], 2, valid_sets=[sets[1]], directory=tmp_path)


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


def said(caplog):
    """What the library warned of, but for the callbacks of these tests."""
    messages = [record.getMessage() for record in caplog.records]
    return [message for message in messages if not message.startswith("what the callback Stops")]


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
    assert said(caplog) == []
    again = [boosted(params, tmp_path / "named", stops(-1, ""), name=f"seed-{n}") for n, params in enumerate(seeds)]
    assert again == alone
    assert said(caplog) == []
    new_process()
    boosted(seeds[1], tmp_path / "named", stops(-1, ""), name="seed-0")
    assert "params seed was 1 and is 2" in caplog.text
