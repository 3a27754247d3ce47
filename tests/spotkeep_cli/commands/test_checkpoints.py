"""`spotkeep checkpoints` on real directories and on a run's objects: what people see, what strangers can't do."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.chunk_checksums import chunk_checksum
from spotkeep.disk.manifest import DataFile, Manifest, data_file_name, manifest_bytes, parse_manifest
from spotkeep.disk.staged_state import StagedState
from spotkeep.ranks.rank_shares import WrittenShare, encode_share, merged, share_numbers
from spotkeep.state.encoding import encode_state
from spotkeep_cli.checkpoints import elements
from spotkeep_cli.errors import ExitCode

BIG = 300_000


def state_at(step: int) -> dict[str, Any]:
    weight = np.zeros(BIG, dtype="f4")
    weight[:5] = step / 100
    return {
        "model": {"layer": {"weight": weight, "bias": np.full((2, 2), 0.5)}},
        "optimizer": {"state": {0: {"step": step}}, "param_groups": [{"lr": 10 / step, "betas": (0.9, 0.99)}]},
        "loss": float("nan"),
        "rng": ((3, (1, 2), None), b"raw"),
    }


def write(path: Path, step: int, state: dict[str, Any]) -> None:
    """A checkpoint whose time and author are always the same."""
    CheckpointDirectory(path).write(encode_state(state), step=step, epochs_completed=step // 100)
    manifest = path / f"step-{step}" / "manifest.json"
    fixed = replace(
        parse_manifest(manifest.read_bytes()),
        created=1_795_262_400.0 + step,
        library="spotkeep 0.1.0",
        metrics={"loss": 25 / step, "accuracy": 0.911},
    )
    manifest.write_bytes(manifest_bytes(fixed))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "checkpoints"
    for step in (100, 200, 300):
        write(path, step, state_at(step))
    return path


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def saved(written: Path) -> Path:
    """Steps 100, 200 and 300, below the working directory."""
    return Path(shutil.copytree(written, "checkpoints"))


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


COMMANDS = [
    "ls checkpoints",
    "verify checkpoints --all",
    "verify checkpoints step-100",
    "show checkpoints",
    "diff checkpoints 100 300",
    "diff checkpoints@200 checkpoints@200",
    "export checkpoints 300 state.safetensors --format safetensors",
]


@pytest.mark.parametrize(
    ("command", "columns"),
    [*((command, 80) for command in COMMANDS), ("show checkpoints", 48), ("diff checkpoints 100 300", 48)],
)
def test_what_it_prints(saved: Path, spotkeep: Any, snapshot: SnapshotAssertion, command: str, columns: int) -> None:
    result = spotkeep("checkpoints", *command.split(), columns=columns)
    assert result.exit_code == 0, result.output
    assert result.output == snapshot
    assert [line for line in result.output.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize("command", ["verify checkpoints --all", "diff checkpoints 100 300", COMMANDS[-1]])
def test_json_is_alone_on_standard_output(saved: Path, spotkeep: Any, command: str) -> None:
    result = spotkeep("checkpoints", *command.split(), "--json")
    assert result.exit_code == 0, result.output
    json.loads(result.stdout, parse_constant=pytest.fail)


def write_by_ranks(path: Path, step: int, *, ranks: int) -> None:
    """What the ranks of a training write together."""
    target = path / f"step-{step}"
    target.mkdir(parents=True)
    owns = [{"rng": np.full(3, rank), "place": {"epoch": 1, "batch": rank}} for rank in range(ranks)]
    encoded = [
        encode_share(
            encode_state({"model": {"weight": np.full(7, step / 100)}}),
            encode_state(own),
            rank=rank,
            own_bytes=[24] * ranks,
        )
        for rank, own in enumerate(owns)
    ]
    shares = []
    for one, numbers in zip(encoded, share_numbers([[1 - min(rank, 1), 1] for rank in range(ranks)]), strict=True):
        snapshot = StagedState()
        images = snapshot.arrange(one.parts)
        snapshot.copy(images)
        files: tuple[list[DataFile], list[DataFile]] = ([], [])
        for image in images:
            name = data_file_name((numbers.common, numbers.own)[image.part])
            (target / name).write_bytes(image.raw)
            files[image.part].append(DataFile(name, len(image.raw), (chunk_checksum(image.raw),)))
        shares.append(WrittenShare(*map(tuple, files), one.document.share, one.document.boxes))
    streams, of_ranks, divided = merged(shares)
    manifest = Manifest(
        step,
        None,
        1_795_262_400.0 + step,
        "spotkeep 0.1.0",
        streams,
        encoded[0].document.common,
        ranks=of_ranks,
        divided=divided,
    )
    (target / "manifest.json").write_bytes(manifest_bytes(manifest))


@pytest.mark.parametrize(
    "command",
    [
        *("ls several", "verify several", "show several", "diff several 100 200"),
        "export several 200 state.safetensors --format safetensors",
    ],
)
def test_what_several_ranks_wrote_is_shown_apart(
    tmp_path: Path, spotkeep: Any, snapshot: SnapshotAssertion, command: str
) -> None:
    write_by_ranks(Path("several"), 100, ranks=2)
    write_by_ranks(Path("several"), 200, ranks=3)
    result = spotkeep("checkpoints", *command.split())
    assert result.exit_code == 0, result.output
    assert result.output == snapshot


def test_damage_to_one_ranks_part_is_found(tmp_path: Path, spotkeep: Any) -> None:
    write_by_ranks(Path("several"), 100, ranks=2)
    flip(tmp_path / "several/step-100/data-00002.bin", 5)
    result = spotkeep("checkpoints", "verify", "several")
    assert result.exit_code == ExitCode.DAMAGED_CHECKPOINT
    assert "step-100/data-00002.bin, bytes 0 to 4,095: altered" in result.output


def test_show_json_has_every_entry(saved: Path, spotkeep: Any) -> None:
    entries = {
        e["name"]: e for e in json.loads(spotkeep("checkpoints", "show", "checkpoints", "--json").stdout)["entries"]
    }
    assert entries["model.layer.bias"]["shape"] == [2, 2]
    assert entries["model.layer.bias"]["dtype"] == "float64"
    assert entries["optimizer.param_groups.0.betas"]["value"] == "(0.9, 0.99)"
    assert entries["optimizer.state.0.step"]["value"] == 300
    assert entries["rng.1"] == {"name": "rng.1", "path": ["rng", "1"], "kind": "bytes", "bytes": 3}


def test_damage_is_named_with_its_place_and_the_exit_code_says_so(saved: Path, spotkeep: Any) -> None:
    flip(saved / "step-300" / "data-00000.bin", 4_321)
    (saved / "step-200" / "data-00000.bin").unlink()
    result = spotkeep("checkpoints", "verify", "checkpoints", "--all")
    assert result.exit_code == ExitCode.DAMAGED_CHECKPOINT
    assert "step-300/data-00000.bin, bytes 0 to " in result.output
    assert "A resume takes step 100." in result.output
    document = json.loads(spotkeep("checkpoints", "verify", "checkpoints", "--json").stdout)
    assert document["resume_takes"] == 100
    [damage] = document["checkpoints"][0]["damage"]
    assert (damage["file"], damage["first_byte"]) == ("step-300/data-00000.bin", 0)
    assert document["checkpoints"][1]["damage"][0]["file"] == "step-200/data-00000.bin"
    listed = spotkeep("checkpoints", "ls", "checkpoints").output
    assert "step 200: step-200/data-00000.bin: missing" in listed


def test_a_verified_step_does_not_say_more_than_was_read(saved: Path, spotkeep: Any) -> None:
    assert "A resume tries step 300 first" in spotkeep("checkpoints", "verify", "checkpoints", "200").output
    assert "A resume takes step 300." in spotkeep("checkpoints", "verify", "checkpoints", "300").output
    flip(saved / "step-300" / "manifest.json", 100)
    result = spotkeep("checkpoints", "verify", "checkpoints", "300")
    assert "A resume tries step 200 first" in result.output
    assert result.exit_code == ExitCode.DAMAGED_CHECKPOINT


def test_when_none_is_good_a_resume_starts_anew(saved: Path, spotkeep: Any) -> None:
    for step in (100, 200, 300):
        flip(saved / f"step-{step}" / "data-00000.bin", 0)
    result = spotkeep("checkpoints", "verify", "checkpoints")
    assert "starts from the beginning" in result.output
    assert "3 damaged, of 3 checkpoints verified" in result.output


@pytest.mark.parametrize(
    "command",
    ["diff checkpoints 200 300", "export checkpoints 300 out.st --format safetensors"],
)
def test_damaged_data_are_never_taken_for_data(saved: Path, spotkeep: Any, command: str) -> None:
    flip(saved / "step-300" / "data-00000.bin", 10)
    result = spotkeep("checkpoints", *command.split())
    assert result.exit_code == ExitCode.DAMAGED_CHECKPOINT
    assert "Error: step-300/data-00000.bin, bytes 0 to " in result.stderr
    assert "Hint: all that is wrong: spotkeep checkpoints verify checkpoints --all" in result.stderr
    assert sorted(path.name for path in Path().iterdir()) == ["checkpoints"]


def test_markers_say_what_was_uploaded(saved: Path, spotkeep: Any) -> None:
    for path in (saved / "step-100").iterdir():
        path.with_name(f"{path.name}.sagemaker-uploaded").touch()
    (saved / "step-200" / "data-00000.bin.sagemaker-uploading").touch()
    listed = {one["step"]: one for one in json.loads(spotkeep("checkpoints", "ls", "checkpoints", "--json").stdout)}
    assert [listed[step]["upload"] for step in (300, 200, 100)] == [None, "uploading", "uploaded"]
    assert [listed[step]["files"] for step in (300, 200, 100)] == [2, 2, 2]
    assert "UPLOAD" in spotkeep("checkpoints", "ls", "checkpoints").stdout


def test_trainings_with_a_folder_of_their_own_are_named(saved: Path, spotkeep: Any) -> None:
    for number in (1, 2):
        shutil.copytree(saved / "step-100", Path("folds") / f"fold-{number}" / "step-100")
    Path("folds/tensorboard").mkdir()
    listed = spotkeep("checkpoints", "ls", "folds").output
    assert "No checkpoints in folds." in listed
    assert "spotkeep checkpoints ls folds/fold-2  those of the training fold-2" in listed
    assert "tensorboard" not in listed
    assert "its trainings are fold-1, fold-2: name one of them" in spotkeep("checkpoints", "show", "folds").stderr
    assert "A resume takes step 100." in spotkeep("checkpoints", "verify", "folds/fold-2").output


def test_a_list_calls_no_checkpoint_whole_whose_data_it_has_not_read(saved: Path, spotkeep: Any) -> None:
    flip(saved / "step-300" / "data-00000.bin", 100)
    listed = spotkeep("checkpoints", "ls", "checkpoints")
    assert [one["state"] for one in json.loads(spotkeep("checkpoints", "ls", "checkpoints", "--json").stdout)] == [
        "sizes right"
    ] * 3
    assert "whole" not in listed.output
    assert "spotkeep checkpoints verify checkpoints  verify the checksums" in listed.output
    verified = json.loads(spotkeep("checkpoints", "verify", "checkpoints", "--json").stdout)["checkpoints"]
    assert [(one["step"], one["state"]) for one in verified] == [(300, "damaged"), (200, "whole")]


def test_what_is_unfinished_or_newer_is_said(saved: Path, spotkeep: Any) -> None:
    (saved / "step-300" / "manifest.json").unlink()
    newer = b'{"format":99,"library":"spotkeep 9.0.0"}'
    digest = hashlib.sha256(newer).hexdigest().encode()
    (saved / "step-200" / "manifest.json").write_bytes(b'{"sha256":"' + digest + b'","manifest":' + newer + b"}\n")
    listed = json.loads(spotkeep("checkpoints", "ls", "checkpoints", "--json").stdout)
    assert [one["state"] for one in listed] == ["unfinished", "newer format", "sizes right"]
    result = spotkeep("checkpoints", "verify", "checkpoints")
    assert "A resume stops at step 200: it needs the newer version." in result.output
    assert result.exit_code == ExitCode.USAGE
    assert "spotkeep 9.0.0" in spotkeep("checkpoints", "show", "checkpoints", "200").stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ls", "./nowhere"], ExitCode.NOT_FOUND, "there is no directory ./nowhere"),
        (["ls", "nowhere"], ExitCode.NOT_FOUND, "there is no run 'nowhere'"),
        (["ls", "checkpoints/step-100"], ExitCode.NOT_FOUND, "name the directory above: checkpoints"),
        (["show", "checkpoints", "150"], ExitCode.NOT_FOUND, "there are 300, 200, 100"),
        (["show", "checkpoints", "../300"], ExitCode.USAGE, "is not a step"),
        (["show", "empty"], ExitCode.NOT_FOUND, "no checkpoints in empty"),
        (["verify", "empty"], ExitCode.NOT_FOUND, "no checkpoints in empty"),
        (["verify", "checkpoints", "100", "--all"], ExitCode.USAGE, "give one of them"),
        (["diff", "checkpoints", "100"], ExitCode.USAGE, "two checkpoints are needed"),
        (
            ["export", "checkpoints", "100", "x", "-f", "pickle"],
            ExitCode.USAGE,
            "one of dcp, orbax, safetensors, torch",
        ),
        (["export", "checkpoints", "100", "a/b/x", "-f", "torch"], ExitCode.USAGE, "no directory a/b"),
        (["export", "checkpoints", "100", "checkpoints", "-f", "torch"], ExitCode.USAGE, "is a directory"),
    ],
)
def test_what_cannot_be_is_reported(
    saved: Path, spotkeep: Any, arguments: list[str], code: ExitCode, words: str
) -> None:
    Path("empty").mkdir()
    result = spotkeep("checkpoints", *arguments)
    assert (result.exit_code, words in result.stderr) == (code, True), result.stderr


def test_an_empty_directory_is_no_error_to_list(tmp_path: Path, spotkeep: Any) -> None:
    result = spotkeep("checkpoints", "ls", str(tmp_path))
    assert result.exit_code == 0
    assert "No checkpoints in" in result.stdout
    assert spotkeep("checkpoints", "ls", str(tmp_path), "--json").stdout == "[]\n"


def test_diff_tells_every_kind_of_change(tmp_path: Path, spotkeep: Any, snapshot: SnapshotAssertion) -> None:
    write(tmp_path, 1, {"a": np.zeros(4, "f4"), "b": np.zeros(4, "f4"), "c": 1, "d": 1, "e": b"x", "f": [1, 2], "g": 0})
    write(
        tmp_path,
        2,
        {"a": np.zeros(4, "f8"), "b": np.zeros((2, 2), "f4"), "d": 1.0, "e": b"xy", "f": [1, 3], "n": 9, "g": -0.0},
    )
    result = spotkeep("checkpoints", "diff", str(tmp_path), "1", "2")
    assert result.output.replace(str(tmp_path), "DIR").partition("\n\n")[0] == snapshot


def test_diff_across_directories_and_without_numpy(saved: Path, spotkeep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("checkpoints", "diff", "checkpoints@100", "other@300")
    write(Path("other"), 300, state_at(300))
    with_numpy = spotkeep(*command)
    monkeypatch.setattr(elements, "numpy_is_installed", lambda: False)
    without = spotkeep(*command)
    assert without.stdout == with_numpy.stdout
    assert "5 of 300,000 elements (under 1%), by at most 2" in " ".join(without.stdout.split())
    assert "NumPy is not installed" in without.stderr


def test_export_never_replaces_a_file_unasked(saved: Path, spotkeep: Any) -> None:
    Path("out.st").write_text("precious")
    command = ("checkpoints", "export", "checkpoints", "100", "out.st", "--format", "safetensors")
    refused = spotkeep(*command)
    assert (refused.exit_code, Path("out.st").read_text()) == (ExitCode.USAGE, "precious")
    assert "--force" in refused.stderr
    assert spotkeep(*command, "--force").exit_code == 0
    assert Path("out.st").stat().st_size > BIG * 4


def test_export_to_torch_needs_no_torch(saved: Path, spotkeep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    result = spotkeep("checkpoints", "export", "checkpoints", "100", "out.pt", "--format", "torch")
    assert result.exit_code == 0, result.output
    assert Path("out.pt").read_bytes().startswith(b"PK")


def test_export_to_orbax_without_it_says_how_to_get_it(
    saved: Path, spotkeep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    result = spotkeep("checkpoints", "export", "checkpoints", "100", "out", "--format", "orbax")
    assert result.exit_code == ExitCode.USAGE
    assert "pip install orbax-checkpoint" in result.stderr
    assert not Path("out").exists()


def test_a_folder_of_files_of_a_size_is_exported_and_imported(saved: Path, spotkeep: Any) -> None:
    command = ("checkpoints", "export", "checkpoints", "100", "out", "--format", "safetensors", "--shard-size", "1KB")
    written = json.loads(spotkeep(*command, "--json").stdout)
    assert (written["format"], Path("out/model.safetensors.index.json").exists()) == ("safetensors", True)
    made = json.loads(spotkeep("checkpoints", "import", "out", "imported", "--step", "7", "--json").stdout)
    assert (made["step"], made["tensors"], made["left_out"]) == (7, written["tensors"], [])
    again = spotkeep("checkpoints", "import", "out", "imported", "--step", "7")
    assert again.exit_code == ExitCode.USAGE
    assert "--force" in again.stderr
    replaced = spotkeep("checkpoints", "import", "out", "imported", "--step", "7", "--force", columns=120)
    assert "imported/step-7 holds out (safetensors)" in replaced.stdout
    assert "Next: spotkeep checkpoints show imported 7" in replaced.stdout


def test_a_file_with_another_name_is_imported_by_its_format(saved: Path, spotkeep: Any) -> None:
    spotkeep("checkpoints", "export", "checkpoints", "100", "weights", "--format", "safetensors")
    unnamed = spotkeep("checkpoints", "import", "weights", "imported", columns=120)
    assert unnamed.exit_code == ExitCode.USAGE
    assert "with another name, add --format safetensors or --format torch" in unnamed.stderr
    named = spotkeep("checkpoints", "import", "weights", "imported", "--format", "safetensors", columns=120)
    assert "imported/step-0 holds weights (safetensors)" in named.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("export", "checkpoints", "100", "x", "-f", "torch", "--shard-size", "5GB"), "is of safetensors"),
        (("export", "checkpoints", "100", "x", "-f", "safetensors", "--shard-size", "big"), "is no size"),
        (("import", "nowhere", "x"), "is no checkpoint of DCP, Orbax or safetensors"),
        (("import", "checkpoints", "x", "--format", "pickle"), "no format 'pickle'"),
        (("import", "checkpoints", "x", "--format", "dcp"), ".metadata cannot be opened"),
        (("import", "checkpoints", "x", "--arrays", "pandas"), "give torch or numpy"),
    ],
)
def test_an_exchange_that_cannot_be_is_reported(
    saved: Path, spotkeep: Any, arguments: tuple[str, ...], complaint: str
) -> None:
    result = spotkeep("checkpoints", *arguments, columns=120)
    assert result.exit_code == ExitCode.USAGE
    assert complaint in result.stderr
    assert not Path("x").exists()


# A run's checkpoints in S3.

PREFIX = "runs/digits-1a2b3c4d/checkpoints/"


@pytest.fixture
def stored(saved: Path, deployment: Any, make: Any) -> Any:
    run = make.run()
    deployment.dynamodb.add(run)
    objects = deployment.s3
    for path in sorted(saved.rglob("*.*")):
        objects.contents[f"{PREFIX}{path.relative_to(saved)}"] = path.read_bytes()
    objects.contents |= {
        f"{PREFIX}step-300/data-00000.bin.sagemaker-uploaded": b"",
        f"{PREFIX}step-300/../../escape": b"no",
        f"{PREFIX}step-300/sub/data": b"no",
        f"{PREFIX}notes.txt": b"mine",
        f"{PREFIX}step-0300/manifest.json": b"no",
    }
    for path in saved.rglob("*.bin"):
        path.unlink()
    return objects


def test_a_run_is_listed_without_fetching_data(stored: Any, spotkeep: Any, snapshot: SnapshotAssertion) -> None:
    assert spotkeep("checkpoints", "ls", "digits").output == snapshot
    assert stored.downloaded == []


def test_a_run_is_verified_shown_and_compared_from_what_was_fetched(stored: Any, spotkeep: Any) -> None:
    assert "A resume takes step 300." in spotkeep("checkpoints", "verify", "digits").output
    assert stored.downloaded == [f"{PREFIX}step-300/data-00000.bin", f"{PREFIX}step-300/manifest.json"]
    stored.downloaded.clear()
    assert "layer" in spotkeep("checkpoints", "show", "digits", "100").output
    assert stored.downloaded == [f"{PREFIX}step-100/manifest.json"]
    result = spotkeep("checkpoints", "diff", "digits", "100", "300")
    assert "~ optimizer.state.0.step" in result.output
    content = bytearray(stored.contents[f"{PREFIX}step-300/data-00000.bin"])
    content[7] ^= 1
    stored.contents[f"{PREFIX}step-300/data-00000.bin"] = bytes(content)
    damaged = spotkeep("checkpoints", "verify", "digits")
    assert damaged.exit_code == ExitCode.DAMAGED_CHECKPOINT
    assert "A resume takes step 200." in damaged.output


def replaced_writer(path: Path) -> list[str]:
    """Checkpoints of a run whose first writer went on after the second one had begun. Gives the folders."""
    path.mkdir()
    first, second = CheckpointDirectory(path), CheckpointDirectory(path)
    first.begin((1, 0), step=None)
    for step in (100, 200, 300):
        first.write(encode_state({"writer": 1, "step": step}), step=step)
    second.begin((2, 0), step=100)
    second.write(encode_state({"writer": 2, "step": 200}), step=200)
    return sorted(each.name for each in path.iterdir())


@pytest.mark.parametrize("where", ["folder", "S3"])
def test_what_a_replaced_writer_saved_is_named_and_not_read(
    where: str, deployment: Any, make: Any, spotkeep: Any, tmp_path: Path
) -> None:
    assert replaced_writer(tmp_path / "run") == [
        "step-100-1.0.1",
        "step-200-1.0.1",
        "step-200-2.0.1",
        "step-300-1.0.1",
        "writers-1.0.1.json",
        "writers-2.0.1.json",
    ]
    target = str(tmp_path / "run")
    if where == "S3":
        target = "digits"
        deployment.dynamodb.add(make.run())
        files = {path.relative_to(tmp_path / "run"): path for path in (tmp_path / "run").rglob("*.*")}
        deployment.s3.contents.update(
            {f"{PREFIX}{name}": path.read_bytes() for name, path in files.items() if path.is_file()}
        )
    listed = spotkeep("checkpoints", "ls", target)
    assert [entry["step"] for entry in json.loads(spotkeep("checkpoints", "ls", target, "--json").stdout)] == [200, 100]
    assert "Not read, because a later writer of the run had begun: step-200-1.0.1, step-300-1.0.1" in listed.stderr
    assert "A resume takes step 200." in spotkeep("checkpoints", "verify", target).output
    shown = json.loads(spotkeep("checkpoints", "show", target, "--json").stdout)
    assert {entry["name"]: entry["value"] for entry in shown["entries"]}["writer"] == 2


def test_one_training_of_a_run_is_named_after_a_colon(stored: Any, spotkeep: Any) -> None:
    for key in [key for key in stored.contents if "/step-100/" in key]:
        stored.contents[key.replace(PREFIX, f"{PREFIX}fold-2/")] = stored.contents[key]
    command = next(line for line in spotkeep("checkpoints", "ls", "digits").output.splitlines() if "fold-2" in line)
    assert "spotkeep checkpoints ls digits:fold-2  those of the training fold-2" in command
    assert "A resume takes step 100." in spotkeep("checkpoints", "verify", "digits:fold-2").output


def test_what_does_not_fit_here_is_not_fetched(stored: Any, spotkeep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    result = spotkeep("checkpoints", "verify", "digits")
    assert "room for 1,000" in result.stderr
    assert "TMPDIR" in result.stderr
    assert stored.downloaded == []


def test_a_run_without_a_manifest_is_reported(stored: Any, spotkeep: Any) -> None:
    del stored.contents[f"{PREFIX}step-300/manifest.json"]
    assert spotkeep("checkpoints", "show", "digits", "300").exit_code == ExitCode.DAMAGED_CHECKPOINT
    assert "step 200" in spotkeep("checkpoints", "show", "digits").output


# Hostile directories.

EVERY_COMMAND = [
    "ls hostile",
    "verify hostile --all",
    "show hostile 5",
    "diff hostile 5 5",
    "export hostile 5 out.st --format safetensors",
    "export hostile 5 out.pt --format torch",
    "export hostile 5 out --format dcp",
]


def forge(state: Any, *data: bytes | int, library: str = "spotkeep", metrics: Any = None) -> None:
    """A checkpoint with right digests whose document is the attacker's; a number is the size of a hole."""
    directory = Path("hostile/step-5")
    directory.mkdir(parents=True)
    files = []
    for index, content in enumerate(data):
        path = directory / f"data-{index:05d}.bin"
        if isinstance(content, int):
            with path.open("wb") as file:
                file.truncate(content)
            size = content
        else:
            path.write_bytes(content)
            size = len(content)
        files.append(DataFile(path.name, size, ("00000000",) * -(-size // 2**22)))
    manifest = Manifest(
        step=5, epochs_completed=None, created=1_795_262_400.0, library=library, streams=(tuple(files),), state=state
    )
    raw = manifest_bytes(manifest)
    # What the library would not write: numbers without end.
    numbers = b'"metrics":' + json.dumps(metrics or {}).encode()
    body = raw[raw.index(b'"manifest":') + 11 : -2].replace(b'"metrics":{}', numbers)
    raw = b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'","manifest":' + body + b"}\n"
    (directory / "manifest.json").write_bytes(raw)


def mapping(**items: Any) -> Any:
    return {"dict": [[name, item] for name, item in items.items()]}


def array(**changes: Any) -> Any:
    return {"ndarray": {"dtype": "<f4", "shape": [2], "order": "C", "file": 0, "offset": 0, "size": 8, **changes}}


def nested() -> Any:
    node: Any = 1
    for _ in range(230):
        node = mapping(a=node)
    return node


HOSTILE: dict[str, Callable[[], None]] = {
    "pickle": lambda: forge(mapping(w={"pickle": "cos\nsystem\n(S'touch owned'\ntR."})),
    "objects": lambda: forge(mapping(w=array(dtype="|O8")), b"12345678"),
    "beyond the end": lambda: forge(mapping(w=array(offset=2**40)), b"12345678"),
    "a shape beyond memory": lambda: forge(mapping(w=array(shape=[2**60, 2])), b"12345678"),
    "a hole of a terabyte": lambda: forge(mapping(w=array(dtype="|u1", shape=[2**40], size=2**40)), 2**40),
    "shared bytes": lambda: forge(mapping(**{f"w{n}": array() for n in range(9)}), b"12345678"),
    "nested": lambda: forge(nested()),
    "a manifest of zeros": lambda: (
        Path("hostile/step-5").mkdir(parents=True),
        Path("hostile/step-5/manifest.json").write_bytes(bytes(10_000)),
        None,
    )[-1],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_document_is_damage(spotkeep: Any, kind: str) -> None:
    HOSTILE[kind]()
    for command in EVERY_COMMAND:
        if (kind, command) == ("a hole of a terabyte", "verify hostile --all"):
            continue  # It reads a hole too, chunk by chunk, for as long as that takes.
        result = spotkeep("checkpoints", *command.split())
        quick = command.startswith("ls") or (kind == "a hole of a terabyte" and command.startswith("show"))
        if not quick:
            assert result.exit_code in {ExitCode.DAMAGED_CHECKPOINT, ExitCode.UNEXPECTED}, result.output
            assert "Error: " in result.stderr
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert sorted(path.name for path in Path().iterdir()) == ["hostile"]


@pytest.mark.parametrize("linked", ["the directory", "its files"])
def test_no_link_leads_outside(saved: Path, spotkeep: Any, linked: str) -> None:
    write(Path("outside"), 5, {"secret": "password", "w": np.zeros(4)})
    step = Path("hostile/step-5")
    if linked == "the directory":
        step.parent.mkdir()
        step.symlink_to(Path("outside/step-5").resolve())
    else:
        step.mkdir(parents=True)
        for path in Path("outside/step-5").iterdir():
            (step / path.name).symlink_to(path.resolve())
    for command in EVERY_COMMAND:
        result = spotkeep("checkpoints", *command.split())
        assert "secret" not in result.output
        assert "password" not in result.output
        if not command.startswith("ls"):
            refused = ExitCode.NOT_FOUND if linked == "the directory" else ExitCode.DAMAGED_CHECKPOINT
            assert result.exit_code == refused
    assert sorted(path.name for path in Path().iterdir()) == ["checkpoints", "hostile", "outside"]


def test_names_and_values_do_not_steer_the_terminal(spotkeep: Any) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\r\u202e[red]"
    forge(mapping(**{evil: evil, "deep": mapping(**{evil: [evil]})}), library=evil)
    write(Path("other"), 6, {evil: 1})
    for command in (*EVERY_COMMAND[:4], "diff hostile@5 other@6"):
        output = spotkeep("checkpoints", *command.split()).output
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(output)


def test_a_number_without_end_is_shown_as_what_it_is(spotkeep: Any) -> None:
    number = {"int": "0x" + "f" * 100_000}
    forge({"dict": [["n", number], [{"tuple": [number]}, 1], [number, 2]]})
    for command in (*EVERY_COMMAND[:4], "show hostile 5 --json", EVERY_COMMAND[4]):
        result = spotkeep("checkpoints", *command.split())
        assert result.exit_code == 0, result.output


def test_any_number_of_metrics_is_shown(spotkeep: Any) -> None:
    forge(mapping(w=1), metrics={"huge": 1e308, **{f"m{n}": n for n in range(99)}})
    assert "m18 18" in spotkeep("checkpoints", "show", "hostile", columns=200).output
    assert "m19" not in spotkeep("checkpoints", "show", "hostile", columns=200).output
    metrics = json.loads(spotkeep("checkpoints", "show", "hostile", "--json").stdout)["metrics"]
    assert (metrics["huge"], metrics["m98"]) == (1e308, 98)


def test_a_metric_that_no_float_holds_is_damage(spotkeep: Any) -> None:
    forge(mapping(w=1), metrics={"huge": 10**400})
    assert spotkeep("checkpoints", "verify", "hostile").exit_code == ExitCode.DAMAGED_CHECKPOINT


def test_a_pipe_in_a_files_place_does_not_hang(saved: Path, spotkeep: Any) -> None:
    for name in ("data-00000.bin", "manifest.json"):
        (saved / "step-300" / name).unlink()
        os.mkfifo(saved / "step-300" / name)
        result = spotkeep("checkpoints", "verify", "checkpoints", "300")
        assert result.exit_code == ExitCode.DAMAGED_CHECKPOINT
        assert "not a regular file" in result.output
        assert "not a regular file" in spotkeep("checkpoints", "ls", "checkpoints").output
