"""Models of XGBoost and LightGBM, by the real ones: whole ones stay, and half ones do not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")

from spotkeep.runner.script_checkpoints.files import problem_of  # noqa: E402

pytestmark = [pytest.mark.boosters, pytest.mark.long]

ROWS = np.random.default_rng(0).normal(size=(200, 5))
VALUES = ROWS.sum(1)
TABLE = pd.DataFrame({"kind": pd.Categorical(list("abcd") * 50), "size": ROWS[:, 0]})


def xgboosts(**options):
    return xgboost.train(options, xgboost.DMatrix(ROWS, VALUES), 3)


def xgboosts_of_kinds():
    return xgboost.train({}, xgboost.DMatrix(TABLE, VALUES, enable_categorical=True), 3)


def lightgbms(data, **options):
    return lightgbm.train({"verbose": -1, **options}, lightgbm.Dataset(data, VALUES), 3)


MODELS = {
    "trees": lambda: (xgboosts(), ("ubj", "json", "deprecated", "model", "")),
    "linear": lambda: (xgboosts(booster="gblinear", nthread=1), ("ubj", "json")),
    "dart": lambda: (xgboosts(booster="dart"), ("ubj", "json")),
    "of kinds": lambda: (xgboosts_of_kinds(), ("ubj", "json")),
    "lightgbm": lambda: (lightgbms(ROWS), ("txt", "lgb", "model", "")),
    "lightgbm of kinds": lambda: (lightgbms(TABLE), ("txt",)),
    "lightgbm dart": lambda: (lightgbms(ROWS, boosting="dart"), ("txt",)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:.*Saving model in the UBJSON format:UserWarning")
@pytest.mark.filterwarnings("ignore:.*pandas_categorical:UserWarning")
def test_a_model_is_whole_as_it_was_written_and_nowhere_before_its_end(tmp_path, name):
    model, endings = MODELS[name]()
    for ending in endings:
        path = tmp_path / f"model{'.' * bool(ending)}{ending}"
        model.save_model(path)
        assert problem_of(path) is None
        content = path.read_bytes()
        # Only a name that says what it is lets one know an empty file, and a line's end at the end does not matter.
        first = 0 if ending == "ubj" else 20
        for length in {*range(first, len(content) - 1, 97), *range(len(content) - 100, len(content) - 2)}:
            path.write_bytes(content[:length])
            without_categories = content[:length].rstrip().endswith(b"end of parameters")
            assert (problem_of(path) is not None) or without_categories, f"{ending} cut after {length}"


def test_one_that_is_cut_in_its_first_bytes_is_known_by_the_others_of_its_series(copied, tmp_path):
    (tmp_path / "models").mkdir()
    for name, model in (("a-{}.txt", lightgbms(ROWS)), ("b-{}.json", xgboosts())):
        for number in (1, 2):
            model.save_model(tmp_path / "models" / name.format(number))
    (tmp_path / "models" / "notes-1.txt").write_text("")
    checkpoints = copied(tmp_path / "models")
    assert checkpoints.put_aside() == {}
    for name in ("a-2.txt", "b-2.json"):
        for content in (b"", (checkpoints.path / name).read_bytes()[:3]):
            (checkpoints.path / name).write_bytes(content)
            assert checkpoints.put_aside()[name] == "it ends in its first words"
    assert set(checkpoints.put_aside()) == {"a-2.txt", "b-2.json"}


def test_the_checkpoints_of_xgboosts_own_callback(copied, tmp_path):
    for folder, as_pickle in (("models", False), ("pickles", True)):
        (tmp_path / folder).mkdir()
        own = xgboost.callback.TrainingCheckPoint(str(tmp_path / folder), interval=1, as_pickle=as_pickle)
        xgboost.train({}, xgboost.DMatrix(ROWS, VALUES), 4, callbacks=[own])
        checkpoints = copied(tmp_path / folder)
        assert checkpoints.put_aside() == {}
        newest = max(checkpoints.path.iterdir())
        newest.write_bytes(newest.read_bytes()[:5000])
        assert checkpoints.put_aside() == {newest.name: "it ends too early"}


def test_what_another_program_wrote_in_that_format_is_not_judged_by_the_order_of_its_keys(tmp_path):
    path = tmp_path / "model.json"
    path.write_text('{"learner": {"version": 1}, "zusatz": {}}')
    assert problem_of(path) is None
    (tmp_path / "log.json").write_text('{"step": 1}\n{"step"')
    assert problem_of(tmp_path / "log.json") is None
