"""I9: settings, data and code that changed since the checkpoint are said at the resume, with what they were."""

from __future__ import annotations

import json
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep import Checkpointer
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.training_description import array_text, changes, describe_process, text_of


def described(*arguments, environment=None, main=None):
    return describe_process(
        main=main or types.SimpleNamespace(__file__="/gone.py"), arguments=arguments, environment=environment or {}
    )


@pytest.fixture
def start(tmp_path, monkeypatch, caplog):
    """One start of a script, with its arguments, its text and its hyperparameters; gives what was said."""
    script = tmp_path / "train.py"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)

    def run(*arguments, text="", hyperparameters=None, **facts):
        caplog.clear()
        script.write_text(text)
        passed = [f"--{name}={value}" for name, value in (hyperparameters or {}).items()]
        monkeypatch.setattr(sys, "argv", [str(script), *arguments, *passed])
        monkeypatch.setenv("SM_HPS", json.dumps(hyperparameters or {}))
        monkeypatch.setenv("SM_USER_ARGS", json.dumps(passed))
        checkpointer = Checkpointer({}, tmp_path / "checkpoints", every_steps=1)
        checkpointer.describe(**facts)
        with checkpointer:
            list(checkpointer.steps(checkpointer.step + 1))
        return caplog.text

    return run


def test_a_start_with_the_same_settings_says_nothing(start):
    for _ in range(3):
        assert start("--lr", "0.1", text="x", hyperparameters={"depth": 3}, rows=90) == ""


def test_what_changed_is_said_once_with_what_it_was_and_what_it_is(start):
    start("--lr", "0.1", text="x", hyperparameters={"depth": 3, "old": 1}, rows=90)
    said = start("--lr", "0.01", text="y", hyperparameters={"depth": 4, "new": 2}, rows=80)
    assert "checkpoints/step-1, which was made with other settings or code" in said
    assert "command line was --lr 0.1 and is --lr 0.01\n" in said
    assert "hyperparameter depth was 3 and is 4" in said
    assert "hyperparameter old was 1 and is not there" in said
    assert "hyperparameter new was not there and is 2" in said
    assert "rows was 90 and is 80" in said
    assert said.count("code of train.py was with the SHA-256 2d711642b726...") == 1
    assert start("--lr", "0.01", text="y", hyperparameters={"depth": 4, "new": 2}, rows=80) == ""


def test_hyperparameters_that_follow_as_arguments_are_said_by_name_alone(start):
    start(hyperparameters={"depth": 3})
    assert "command line" not in start(hyperparameters={"depth": 4})


def test_a_checkpoint_without_a_description_says_nothing():
    assert changes({}, {"command line": "--lr 1"}) == []


def test_very_many_changes_are_counted():
    said = changes({str(n): "a" for n in range(50)}, {})
    assert len(said) == 21
    assert said[-1] == "and 30 more"


def test_a_notebook_has_no_arguments_of_its_own():
    assert describe_process(main=types.SimpleNamespace(), arguments=["-f", "kernel-7.json"], environment={}) == {}


@pytest.mark.parametrize(
    "rank",
    [["--local-rank", "3"], ["--local_rank=3"], ["--local-rank=3"], ["--node_rank", "1"], ["--world-size=4"]],
)
def test_the_number_of_a_rank_or_of_all_ranks_is_no_setting(rank):
    assert described("--lr", "1", *rank, "--seed", "2") == described("--lr", "1", "--seed", "2")


SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--hf-token", SECRET],
        ["--api_key=" + SECRET],
        ["--dbPassword", SECRET],
        ["tracking.password=" + SECRET],
        ["AWS_SECRET_ACCESS_KEY=" + SECRET],
        ["--tracking-uri", f"https://me:{SECRET}@mlflow.example.com"],
        ["--config=https://" + SECRET + "@git.example.com"],
    ],
)
def test_secrets_are_not_written(arguments):
    assert "***" in described(*arguments)["command line"]
    assert SECRET not in str(described(*arguments))
    name, _, value = arguments[0].lstrip("-").partition("=")
    named = {name: value or arguments[1], "nested": {name: {"x": 1}, "list": [{"password": SECRET}]}}
    assert SECRET not in str(described(environment={"SM_HPS": json.dumps(named)}))


def test_what_only_sounds_like_a_secret_is_written():
    words = ["--tokenizer", "bpe", "--max_tokens=512", "--num_key_value_heads=4", "--monkey", "1"]
    assert described(*words)["command line"] == " ".join(words)


@given(
    value=st.recursive(
        st.none() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_a_text_is_short_and_its_end_still_counts(value):
    long = "x" * 5000
    assert len(text_of(value)) <= 400
    assert len(text_of([value, long])) <= 400
    assert text_of([long, 1]) != text_of([long, 2])


def test_it_is_in_the_manifest_and_nothing_strange_comes_back(tmp_path):
    checkpointer = Checkpointer({}, tmp_path, name="a")
    checkpointer.describe(data={"rows": 3})
    with checkpointer:
        checkpointer.describe(data="too late")
        checkpointer.save(1)
    made_by = CheckpointDirectory(tmp_path / "a").read_manifest(1).made_by
    assert (made_by["name"], made_by["data"]) == ("a", '{"rows": 3}')


def test_arrays_differ_by_form_and_content():
    rows = np.arange(12.0).reshape(4, 3)
    forms = [rows, rows.astype("f4"), rows.reshape(3, 4), rows + 1, rows.T, np.float64(3), [1, 2], "text", object()]
    texts = [array_text(form) for form in forms]
    assert len(set(texts)) == len(forms)
    assert texts[0].startswith("(4, 3) float64 ")
    large = np.zeros(2**21, dtype="u1")
    before = array_text(large)
    large[-1] = 1
    assert array_text(large) != before


class Optimizer:
    """As torch's: its settings are in groups beside the tensors, and a schedule changes the rate."""

    def __init__(self, **settings):
        self.param_groups = [{"params": [object()], "betas": (0.9, 0.99), **settings}]

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class Schedule(Optimizer):
    def __init__(self, step_size):
        self.step_size, self.last_epoch, self._last_lr = step_size, 7, [0.5]

    def get_last_lr(self):
        return self._last_lr


def test_settings_of_optimizers_that_changed_are_said_as_long_as_they_differ(tmp_path, caplog):
    """Wherever they come from: the checkpoint brings the old ones back, and the training goes on with these."""
    for lr, step_size in ((0.1, 3), (0.1, 3), (0.2, 4), (0.2, 4), (0.1, 3)):
        state = {"optimizers": [Optimizer(lr=0.05, initial_lr=lr)], "schedule": Schedule(step_size)}
        caplog.clear()
        with Checkpointer(state, tmp_path, every_steps=1) as checkpointer:
            state["optimizers"][0].param_groups[0]["lr"] = 0.001
            list(checkpointer.steps(checkpointer.step + 1))
        changed = lr == 0.2
        assert ("state['optimizers'][0].lr was 0.1 and is 0.2" in caplog.text) is changed
        assert ("state['schedule'].step_size was 3 and is 4" in caplog.text) is changed
        assert caplog.text.count(" was ") == (3 if changed else 0), "the heading has one"


def test_a_module_that_imports_its_parts_lazily_imports_none_of_them(tmp_path, monkeypatch):
    asked = []

    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            asked.append(name)
            raise AttributeError(name)

    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    script = tmp_path / "train.py"
    script.write_text("")
    assert "code of train.py" in described(main=types.SimpleNamespace(__file__=str(script)))
    assert asked == []


def test_the_code_that_the_script_imported_from_its_folder_counts_and_no_other(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    modules = ["model.py", "parts/layers.py", ".venv/lib/site-packages/other.py", "spotkeep/of_the_library.py"]
    for number, name in enumerate([*modules, "not_imported.py", "train.py"]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(str(number))
    for name in modules:
        called = name[:-3].replace("/", ".")
        monkeypatch.setitem(sys.modules, called, types.SimpleNamespace(__file__=str(tmp_path / name)))
    said = described(main=types.SimpleNamespace(__file__=str(script)))
    assert sorted(said) == ["code of model.py", "code of parts/layers.py", "code of train.py", "command line"]
