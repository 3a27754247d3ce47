"""A job file is read by the rules people expect, and every field knows its line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.errors import JobFileError, UsageError
from spotkeep_cli.launching.job_file import MAX_JOB_FILE_BYTES, parse_field_path, parse_override, read_job_file


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
    ],
)
def test_what_is_no_job_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(JobFileError) as refusal:
        read_job_file(write(tmp_path, text))
    assert message in refusal.value.message
    assert "\n" not in refusal.value.message


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
        "hyperparameters": {"lr": 0.001},
        "environment": {"OMP_NUM_THREADS": 4},
        "notify": ["completed", "failed"],
        "channels": [{"uri": "s3://c/d"}],
    }
    assert document.line_of("name") is None
    assert document.is_overridden("hyperparameters.lr")
    assert not document.is_overridden("hyperparameters")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("name", "--set takes field=value"),
        ("=value", "--set takes field=value"),
        ("name=[1", "is not YAML"),
        ("name.first=x", "name is the value 'digits', nothing can be set inside it"),
        ("channels.5.uri=x", "channels is a list of 1"),
        ("channels.train=x", "channels is a list of 1"),
    ],
)
def test_an_override_that_fits_nothing_says_so(tmp_path: Path, override: str, message: str) -> None:
    path = write(tmp_path, "name: digits\nchannels:\n  - uri: s3://a/b\n")
    with pytest.raises(UsageError) as refusal:
        read_job_file(path, overrides=[override])
    assert message in refusal.value.message
    assert refusal.value.hint


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
