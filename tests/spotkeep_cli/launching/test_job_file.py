"""A job file is read by the rules people expect, and every field knows its line."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from spotkeep_cli.errors import JobFileError, UsageError
from spotkeep_cli.importing.training_job import ImportedJob
from spotkeep_cli.launching.job_file import MAX_JOB_FILE_BYTES, parse_field_path, parse_override, read_job_file
from spotkeep_jobs.document.request import JobRequest, read_document
from spotkeep_jobs.errors import Problem


def write(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text)
    return path


def test_fields_and_their_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path, "name: digits\ncommand: python train.py\n\nchannels:\n  - name: train\n    uri: s3://data/train\n"
    )
    document = read_job_file(path)
    assert document.fields == {
        "name": "digits",
        "command": "python train.py",
        "channels": [{"name": "train", "uri": "s3://data/train"}],
    }
    assert document.line_of("name") == 1
    assert document.line_of("channels[0].uri") == 6
    assert document.line_of("channels.0.name") == 5


def test_the_types_of_a_job_are_on_the_line_of_the_one_type_that_it_names(tmp_path: Path) -> None:
    document = read_job_file(write(tmp_path, "name: digits\ninstance_type: ml.m5.huge\n"))
    assert document.line_of("instance_types") == 2


def test_a_missing_field_has_the_line_of_what_is_around_it_or_none(tmp_path: Path) -> None:
    document = read_job_file(write(tmp_path, "name: digits\nchannels:\n  - name: train\n"))
    assert document.line_of("channels[0].uri") == 3
    assert document.line_of("command") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("12:30:00", "12:30:00"),
        ("2026-11-21", "2026-11-21"),
        ("1e-3", 0.001),
        ("010", 10),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("true", True),
        ("~", None),
        ("<<", "<<"),
        ("=", "="),
        ("4h", "4h"),
        ("-.5", -0.5),
    ],
)
def test_scalars_are_what_people_mean(tmp_path: Path, text: str, value: object) -> None:
    assert read_job_file(write(tmp_path, f"field: {text}\n")).fields == {"field": value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("- a\n- b\n", ":1: a job file is a list of `field: value` lines, found a list"),
        ("just words\n", "found a single value"),
        ("name: digits\nname: letters\n", ":2: the field 'name' is given twice, first on line 1"),
        ("name: digits\ncommand: [python\n", ":3: not YAML"),
        ("name: digits\n\tcommand: x\n", ":2: not YAML"),
        ("name: &a [*a]\n", ":1: the anchor used here contains itself"),
        ("name: !!python/object:os.system x\n", ":1: not YAML"),
        ("name: a\x00b\n", "not YAML"),
        ("name: " + "[" * 100, "more than 40 lists and mappings"),
        ("{[a]: b}: c\n", "not YAML"),
        ("name: a\n---\nname: b\n", ":2: a second job begins here"),
        ("environment:\n  A: !!binary aGk=\n", ":2: a job file holds no !!binary"),
        ("environment: !!set {A}\n", ":1: a job file holds no !!set"),
        ("tags: {1: a, '1': b}\n", ":1: the field '1' is given twice, first on line 1"),
    ],
)
def test_what_is_no_job_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(JobFileError) as refusal:
        read_job_file(write(tmp_path, text))
    assert message in refusal.value.message
    assert "\n" not in refusal.value.message


def test_a_tab_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobFileError) as refusal:
        read_job_file(write(tmp_path, '{\n\t"name": "digits"\n}\n'))
    assert "spaces in place of tabs" in refusal.value.hint


NUMBERS = (
    *("1", "0.1", "1.10", "5.", ".5", "+5", "-0", "00123", "010", "012345678901", "1e3", "12e4567", "8716e25"),
    *(".inf", "-.INF", ".nan", "0x1F", "0o17", "1_000", "12:30", "2026-01-01"),
)
OTHERS = ["yes", "no", "on", "off", "y", "True", "FALSE", "true"]
looks_like_a_number = st.sampled_from(NUMBERS) | st.from_regex(
    re.compile(r"[-+]?[0-9._]{1,9}([eE][-+]?[0-9]{1,4})?", re.ASCII), fullmatch=True
)


def as_the_launcher_reads(tmp_path_factory: pytest.TempPathFactory, text: str, *, overrides: Sequence[str] = ()) -> Any:
    file = write(tmp_path_factory.mktemp("job"), f"name: digits\ncommand: python train.py\n{text}")
    return JobRequest.model_validate(json.loads(json.dumps(read_job_file(file, overrides=overrides).fields)))


@given(text=looks_like_a_number | st.sampled_from(OTHERS))
def test_what_is_text_to_aws_stays_as_it_is_written(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = f"environment: {{RELEASE: {text}}}\ntags: {{{text}: {text}}}\nowner: {text}\nmetrics: [{text}]\n"
    request = as_the_launcher_reads(
        tmp_path_factory, file, overrides=[f"command=[python, train.py, --release, {text}]", f"environment.A={text}"]
    )
    assert request.environment == {"RELEASE": text, "A": text}
    assert request.tags == {text: text}
    assert request.owner == text
    assert list(request.metrics) == [text]
    assert request.command == ("python", "train.py", "--release", text)


@given(text=looks_like_a_number)
@example(text="-.75")
@example(text=".10")
@example(text="+.0")
@example(text="00.5")
def test_a_hyperparameter_is_the_number_as_it_is_written(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """It may have a zero more beside its point: then it is a number to a script that reads JSON, too."""
    request = as_the_launcher_reads(tmp_path_factory, f"hyperparameters: {{x: {text}}}\n")
    if text.casefold().lstrip("-+") in {".inf", ".nan"}:
        assert request.hyperparameters["x"] in {"Infinity", "-Infinity", "NaN"}
        return
    with_zero = re.sub(r"\.$", ".0", re.sub(r"^\+?(-?)\.", r"\g<1>0.", text))
    assert request.hyperparameters["x"] in {text, with_zero}


@pytest.mark.parametrize(
    ("text", "value"),
    [(".9", 0.9), ("-.75", -0.75), ("5.", 5.0), (".inf", math.inf), ("-.INF", -math.inf), ("1e-3", 0.001)],
)
def test_a_hyperparameter_that_is_only_a_number_is_one_to_a_script_that_reads_json(
    tmp_path_factory: pytest.TempPathFactory, text: str, value: float
) -> None:
    request = as_the_launcher_reads(tmp_path_factory, f"hyperparameters: {{x: {text}}}\n")
    assert json.loads(request.hyperparameters["x"]) == value


@pytest.mark.parametrize("text", ["true", "True", "TRUE"])
def test_a_hyperparameter_that_is_true_is_jsons_true(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    request = as_the_launcher_reads(tmp_path_factory, f"hyperparameters: {{x: {text}, y: 'True'}}\n")
    assert request.hyperparameters == {"x": "true", "y": "True"}


def test_a_trial_of_a_sweep_has_numbers_as_they_are_written(tmp_path: Path) -> None:
    listed = "release: [1.10, 1.2], momentum: [.9, 1.], decay: [1e-3, 2.5e-4], steps: [1e3]"
    space = f"{{{listed}, lr: {{log_uniform: [1e-5, 1e-2]}}, nesterov: [True, false]}}"
    sweep = read_job_file(write(tmp_path, f"sweep: {{parameters: {space}, trials: 010}}\n")).fields["sweep"]
    assert sweep["parameters"]["release"] == ["1.10", 1.2]
    assert sweep["parameters"]["momentum"] == [0.9, 1.0]
    assert sweep["parameters"]["decay"] == [0.001, 0.00025]
    assert sweep["parameters"]["steps"] == ["1e3"]
    assert sweep["parameters"]["lr"] == {"log_uniform": [1e-5, 1e-2]}
    assert sweep["parameters"]["nesterov"] == [True, False]
    assert sweep["trials"] == 10
    trials = read_job_file(write(tmp_path, "sweep: {trials: [{release: 1.10}, {release: 1.2}]}\n")).fields["sweep"]
    assert trials["trials"] == [{"release": "1.10"}, {"release": 1.2}]


def test_one_value_is_text_in_one_field_and_a_number_in_another(tmp_path: Path) -> None:
    fields = read_job_file(
        write(
            tmp_path,
            "environment: &usual {RELEASE: &release 1.10}\n"
            "hyperparameters: {<<: *usual, epochs: 3}\n"
            "max_cost: *release\n"
            "tags: {<<: [*usual, {1: a, true: b}], true: c}\n"
            "max_run: 0600\n",
        )
    ).fields
    assert fields["hyperparameters"] == {"RELEASE": "1.10", "epochs": 3}
    assert fields["max_cost"] == 1.1
    assert fields["tags"] == {"RELEASE": "1.10", "1": "a", "true": "c"}
    assert fields["max_run"] == 600


def test_a_value_of_text_that_is_null_is_refused_with_the_way_to_write_it(tmp_path: Path) -> None:
    _, problems, _ = read_document(read_job_file(write(tmp_path, "name: a\nenvironment: {HOME: ~}\n")).fields)
    assert ["in quotes" in each.fix for each in problems if each.field == "environment.HOME"] == [True]


@given(
    values=st.dictionaries(
        st.text(min_size=1, max_size=5) | looks_like_a_number | st.sampled_from([*OTHERS, "~", "null", "<<", "="]),
        st.text(max_size=9)
        | looks_like_a_number
        | st.sampled_from([*OTHERS, "~", "null", "<<", "="])
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.integers()
        | st.booleans(),
        max_size=4,
    )
)
@example(values={"-.0": "-.0", "+.5": "-.5e3", "1e3": 1e16})
def test_what_an_import_writes_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]
) -> None:
    fields = {"name": "digits", "command": ["python", "1.10"], "hyperparameters": values, "environment": values}
    file = tmp_path_factory.mktemp("job") / "job.yaml"
    file.write_text(ImportedJob.of(fields, []).as_job_file(), encoding="utf-8")
    read = read_job_file(file).fields
    assert json.dumps(read) == json.dumps(fields if values else {key: fields[key] for key in ("name", "command")})


@given(environment=st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=3))
@example(environment={"\U0001d6fc": "\U0001d6fc /\x7f\u2028"})
def test_a_job_file_may_be_json(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> None:
    fields = {"name": "digits", "environment": environment}
    file = write(tmp_path_factory.mktemp("job"), json.dumps(fields))
    assert read_job_file(file).fields == fields


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("command:\n  python prepare.py\n  python train.py\n", True),
        ("command: >\n  pip install -r more.txt\n  python train.py --lr 0.1\n", True),
        ("setup: >-\n  apt-get update\n\n  apt-get install -y x\n", False),  # An empty line is a line end.
        ("setup: 'apt-get update\n  apt-get install -y x'\n", True),
        ("command: |\n  python prepare.py\n  python train.py\n", False),
        ("command: >\n  python train.py\n  --lr 0.1\n  data\n", False),
        ("command: >\n  python prepare.py &&\n  python train.py\n", False),
        ("command: >\n  torchrun --no-python\n  python train.py\n", False),
        ("command: python launch.py python train.py\n", False),
        ("command: >\n  python -m pkg.prepare\n  python -m pkg.train\n", True),
        ("command:\n  ./prepare.sh\n  ./train.sh --lr 0.1\n", True),
        ("command: >\n  torchrun --nproc-per-node 2 a.py\n  accelerate launch b.py\n", True),
        ("command: >\n  python prepare.py\n  --to data\n  python train.py\n", True),
        ("command: >\n  chmod +x a.sh\n  ./a.sh\n", True),
        ("command: >\n  echo starts\n  python train.py\n", True),
        ("command: >\n  rm -rf out\n  python train.py\n", True),
        ("setup: >\n  sudo pip install x\n  sudo pip install y\n", True),
        ("command: >\n  python launch.py --\n  python train.py\n", False),
        ("command: >\n  python launch.py\n  --program\n  python train.py\n", False),
        ("command: >\n  python -m launch --no_python\n  python train.py\n", False),
        ("command: >\n  uv run --with x\n  python train.py\n", False),
        ("command: >\n  mpirun -np 2\n  python train.py\n", False),
        ("command: >\n  accelerate launch\n  train.py\n  --name echo\n", False),
        ("name: >\n  python a.py\n  python b.py\n", False),
    ],
)
def test_commands_that_yaml_joins_into_one_are_refused(tmp_path: Path, text: str, joined: bool) -> None:
    path = write(tmp_path, f"image: mine\n{text}max_run: 1h\n")
    if not joined:
        assert read_job_file(path).fields["max_run"] == "1h"
        return
    with pytest.raises(JobFileError, match=r":2: (command|setup) has several lines, which YAML joins") as refused:
        read_job_file(path)
    assert ": |`, which keeps the lines" in str(refused.value.hint)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="there is no file"):
        read_job_file(tmp_path / "absent.yaml")
    with pytest.raises(JobFileError, match="is a directory"):
        read_job_file(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(JobFileError, match="not UTF-8"):
        read_job_file(tmp_path / "binary.yaml")
    (tmp_path / "huge.yaml").write_text("x" * (MAX_JOB_FILE_BYTES + 1))
    for without_an_end in (tmp_path / "huge.yaml", Path("/dev/zero")):
        with pytest.raises(JobFileError, match="more than 262,144 bytes") as refusal:
            read_job_file(without_an_end)
        assert "not its data" in refusal.value.hint
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(JobFileError, match="is empty"):
        read_job_file(tmp_path / "pipe")


def test_overrides_reach_inside_and_come_after_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "name: digits\nhyperparameters:\n  lr: 0.1\nchannels:\n  - uri: s3://a/b\n")
    document = read_job_file(
        path,
        overrides=[
            "hyperparameters.lr=1e-3",
            "environment.OMP_NUM_THREADS=4",
            "notify=[completed, failed]",
            "channels.0.uri=s3://c/d",
            "name=letters",
        ],
    )
    assert document.fields == {
        "name": "letters",
        "hyperparameters": {"lr": "1e-3"},
        "environment": {"OMP_NUM_THREADS": 4},
        "notify": ["completed", "failed"],
        "channels": [{"uri": "s3://c/d"}],
    }
    assert document.line_of("name") is None
    assert document.is_overridden("hyperparameters.lr")
    assert not document.is_overridden("hyperparameters")


@pytest.mark.parametrize(
    ("override", "field", "option"),
    [
        ("name=letters", "name", "name"),
        ("nodes.max=3", "nodes.max", "nodes.max"),
        ("nodes.max=3", "nodes", "nodes.max"),
        ("nodes.max=3", "nodes.min", None),
        ("nodes={min: 1, max: 3}", "nodes.min", "nodes"),
        ("channels.0.uri=s3://c/d", "channels[0]", "channels.0.uri"),
        ("channels.0.uri=s3://c/d", "channels[0].name", None),
        ("instance_type=m5.large", "instance_types", "instance_type"),
        ("names=letters", "name", None),
    ],
)
def test_a_problem_of_what_set_gave_has_the_option_in_place_of_a_line(
    override: str, field: str, option: str | None, tmp_path: Path
) -> None:
    """A rule may name the field around the one that was given."""
    text = (
        "name: digits\nnodes: {min: 1, max: 2}\nchannels:\n- {name: train, uri: s3://a/b}\ninstance_type: g5.xlarge\n"
    )
    path = write(tmp_path, text)
    document = read_job_file(path, overrides=[override])
    [located] = document.located([Problem(field=field, found="it", problem="is wrong", fix="Change it.")])
    assert (located.option, located.line is None) == (option, option is not None)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("name", "--set takes field=value"),
        ("=value", "--set takes field=value"),
        ("name=[1", "is not YAML"),
        ("name.first=x", "name is the value 'digits', nothing can be set inside it"),
        ("channels.5.uri=x", "channels is a list of 1"),
        ("channels.train=x", "channels is a list of 1"),
        ("tags={a: 1, a: 2}", "the field 'a' is given twice"),
        ("max_cost=!!int x", "does not fit its tag"),
    ],
)
def test_an_override_that_fits_nothing_says_so(tmp_path: Path, override: str, message: str) -> None:
    path = write(tmp_path, "name: digits\nchannels:\n  - uri: s3://a/b\n")
    with pytest.raises(UsageError) as refusal:
        read_job_file(path, overrides=[override])
    assert message in refusal.value.message
    assert refusal.value.hint


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("environment.NOTE=first #2", "first #2"),
        ("environment.NOTE=#2", "#2"),
        ("environment.NOTE=a\nb", "a\nb"),
        ("environment.NOTE='#2' # as YAML has it", "#2"),
        ("max_run=4h # a duration", "4h"),
        ("deadline=", None),
    ],
)
def test_nothing_of_a_text_in_an_override_is_cut_off(override: str, value: object) -> None:
    assert parse_override(override)[1] == value


names = st.text(alphabet="abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8)
values = st.one_of(st.integers(), st.booleans(), st.none(), st.lists(st.integers(), max_size=3), st.text(max_size=12))


@given(path=st.lists(names, min_size=1, max_size=4), value=values)
def test_every_value_survives_the_way_through_an_override(path: list[str], value: object) -> None:
    override = f"{'.'.join(path)}={yaml.safe_dump(value, default_flow_style=True, default_style=None).strip()}"
    if isinstance(value, str):
        override = f"{'.'.join(path)}={yaml.safe_dump(value, default_style=chr(34), allow_unicode=False, width=10**6)}"
    assert parse_override(override) == (tuple(path), value)


@given(st.lists(st.one_of(names, st.integers(min_value=0, max_value=99)), min_size=1, max_size=5))
def test_both_spellings_of_a_position_are_one_path(parts: list[str | int]) -> None:
    dotted = ".".join(str(part) for part in parts)
    bracketed = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
    assert parse_field_path(dotted) == parse_field_path(bracketed) == tuple(parts)


def test_a_script_in_the_place_of_a_job_file_is_offered_one(tmp_path: Path) -> None:
    with pytest.raises(JobFileError) as refused:
        read_job_file(tmp_path / "train.py")
    assert "is a script, and this command takes a job file" in refused.value.message
    assert "spotkeep init " in refused.value.hint
    assert "spotkeep rehearse -- python " in refused.value.hint
