"""Files of the script's own: whole in S3 or not there, back on a new volume, and removed after what replaces them."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spotkeep import Checkpointer
from spotkeep.errors import RemoteError
from spotkeep.remote.s3_objects import Part, S3Object, S3Place
from spotkeep.remote.transfer import Pace
from spotkeep.training_folder import TRAININGS_HERE
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.aws.object_files import PART_BYTES
from spotkeep_agent.training import script_files as module
from spotkeep_agent.training.script_files import ScriptFiles, is_of_the_script

PLACE = S3Place("bucket", "runs/run/checkpoints/")
NEVER = threading.Event()


class Objects:
    """A bucket in memory."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.order: list[str] = []
        self.uploads: dict[str, tuple[dict[str, str], dict[int, bytes]]] = {}
        self.before_read: Callable[[], None] = lambda: None
        self.problem: Exception | None = None

    def names(self) -> set[str]:
        return {key[len(PLACE.prefix) :] for key in self.stored}

    def listing(self, prefix: str) -> list[S3Object]:
        self._fail()
        return [S3Object(key, len(raw)) for key, (raw, _) in sorted(self.stored.items()) if key.startswith(prefix)]

    def head(self, key: str) -> S3Object | None:
        raw, labels = self.stored[key]
        return S3Object(key, len(raw), labels=labels)

    def read(self, key: str, *, start: int, size: int, etag: str | None = None) -> bytes:
        self._fail()
        self.before_read()
        return self.stored[key][0][start : start + size]

    def write(self, key: str, raw: bytes, *, labels: dict[str, str]) -> None:
        self._fail()
        self.stored[key] = (raw, labels)
        self.order.append(key[len(PLACE.prefix) :])

    def delete(self, key: str) -> None:
        del self.stored[key]

    def begin_upload(self, key: str, *, labels: dict[str, str]) -> str:
        self.uploads[key] = (labels, {})
        return key

    def write_part(self, key: str, upload: str, *, number: int, raw: bytes) -> Part:
        self.uploads[upload][1][number] = raw
        self.before_read()
        return Part(number, "e", None, len(raw))

    def finish_upload(self, key: str, upload: str, parts: list[Part]) -> None:
        labels, raw = self.uploads.pop(upload)
        self.write(key, b"".join(raw[number] for number in sorted(raw)), labels=labels)

    def abort_upload(self, key: str, upload: str) -> None:
        del self.uploads[upload]

    def _fail(self) -> None:
        if self.problem is not None:
            raise self.problem


class Volume:
    """A volume with a directory of checkpoints, and what copies it; time passes by hand."""

    def __init__(self, root: Path, objects: Objects) -> None:
        self.now = 0.0
        self.directory = root / "checkpoints"
        self.directory.mkdir(parents=True)
        any_objects: Any = objects
        self.files = ScriptFiles(
            PLACE,
            UserFiles(root),
            kept=root,
            objects=any_objects,
            fetching=any_objects,
            pace=Pace(None),
            scan_seconds=3600.0,
            clock=lambda: self.now,
        )

    def write(self, name: str, raw: bytes, *, at: int = 1_000) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
        os.utime(path, (at, at))
        return path

    def scan(self) -> bool:
        return self.files.copy(settled_only=True)

    def settle(self) -> bool:
        self.scan()
        return self.scan()


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def volume(tmp_path: Path, objects: Objects) -> Volume:
    return Volume(tmp_path / "first", objects)


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("model.pt", True),
        ("checkpoint-500/optimizer.pt", True),
        ("epoch/.metadata", True),
        ("step-5/notes.txt", True),
        ("checkpoint/manifest.json", True),
        ("fold-2/step-5/manifest.json", True),
        ("fold-2/step-5/manifest.json.draft", False),
        ("fold-2/interruptions.json.draft", False),
        ("step-5/manifest.json", False),
        ("step-5/manifest.json.draft", False),
        ("step-5/data-00000.bin", False),
        ("step-5/data-00000.bin.draft", False),
        ("step-5-2.1.1/manifest.json", False),
        ("step-5-2.1.1/data-00000.bin", False),
        ("step-5-2.1.1/notes.txt", True),
        ("writers-2.1.1.json", False),
        ("fold-2/step-5-2.1.1/manifest.json", True),
        ("fold-2/step-5-2.1.1/manifest.json.draft", False),
        ("fold-2/writers-2.1.1.json", True),
        ("interruptions.json", False),
        ("interruptions.json.draft", False),
        ("exits-on-notice.json", False),
        (".spare/data-00000.bin", False),
        (".spotkeep-probe-1", False),
        ("model.pt.sagemaker-uploading", False),
        ("model.pt.sagemaker-uploaded", False),
        ("model.pt.spotkeep-draft", False),
        ("../model.pt", False),
        ("a//model.pt", False),
    ],
)
def test_whose_a_file_is(name: str, is_own: bool) -> None:
    assert is_of_the_script(name) is is_own


def test_a_file_is_copied_when_two_scans_find_it_the_same(volume: Volume, objects: Objects) -> None:
    volume.write("model.pt", b"half")
    assert not volume.scan()
    volume.write("model.pt", b"whole", at=2_000)
    assert not volume.scan()
    assert not objects.stored
    assert volume.scan()
    assert objects.stored == {f"{PLACE.prefix}model.pt": (b"whole", {"spotkeep-modified-ns": "2000000000000"})}
    objects.stored.clear()
    assert volume.scan()
    assert not objects.stored, "what has not changed is not sent again"
    volume.write("model.pt", b"newer", at=3_000)
    volume.settle()
    assert objects.stored[f"{PLACE.prefix}model.pt"][0] == b"newer"


def test_a_file_that_is_open_for_writing_is_not_copied(volume: Volume, objects: Objects) -> None:
    path = volume.write("log", b"so far")
    with path.open("rb") as reader:
        try:
            fcntl.fcntl(reader.fileno(), fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(reader.fileno(), fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError:
            pytest.skip("this file system has no leases")
    with path.open("ab"):
        assert not volume.settle()
        assert not objects.stored
    assert volume.settle()
    assert objects.names() == {"log"}


@pytest.mark.parametrize("size", [PART_BYTES + 1, 3 * PART_BYTES])
def test_a_file_that_changes_while_it_is_sent_is_not_there_until_it_is_whole(
    volume: Volume, objects: Objects, size: int
) -> None:
    volume.write("model.pt", b"x" * size)
    volume.scan()

    def change() -> None:
        volume.write("model.pt", b"y" * size, at=2_000)

    objects.before_read = change
    assert not volume.scan()
    assert (objects.stored, objects.uploads) == ({}, {})
    objects.before_read = lambda: None
    assert volume.settle()
    assert objects.stored[f"{PLACE.prefix}model.pt"][0] == b"y" * size


def test_an_event_file_of_tensorboard_is_copied_while_it_grows(volume: Volume, objects: Objects) -> None:
    name = "tensorboard/events.out.tfevents.1795250343.host.1.0"
    path = volume.write(name, b"first")
    with path.open("ab", buffering=0) as written:
        assert volume.scan()
        assert objects.stored[PLACE.prefix + name][0] == b"first"
        written.write(b", second")
        assert volume.scan()
        assert objects.stored[PLACE.prefix + name][0] == b"first, second"


def test_a_large_event_file_is_copied_when_it_is_closed(
    volume: Volume, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_GROWING_BYTES", 4)
    path = volume.write("events.out.tfevents.1", b"large")
    with path.open("ab", buffering=0):
        assert not volume.scan()
        assert not volume.scan()
        assert objects.names() == set()
    assert volume.scan()
    assert objects.names() == {"events.out.tfevents.1"}


def test_files_go_in_the_order_they_were_written(volume: Volume, objects: Objects) -> None:
    """What a framework writes last (a state file, an index) vouches for what it wrote before."""
    volume.write("a/index.json", b"3", at=3_000)
    volume.write("b/weights", b"1", at=1_000)
    volume.write("a/optimizer", b"2", at=2_000)
    volume.settle()
    assert objects.order == ["b/weights", "a/optimizer", "a/index.json"]


def test_what_the_script_removes_goes_a_quarter_of_an_hour_later(volume: Volume, objects: Objects) -> None:
    volume.write("epoch-1.pt", b"1")
    volume.settle()
    (volume.directory / "epoch-1.pt").unlink()
    volume.write("epoch-2.pt", b"2", at=2_000)
    volume.settle()
    assert objects.names() == {"epoch-1.pt", "epoch-2.pt"}
    volume.now = 899.0
    volume.scan()
    assert objects.names() == {"epoch-1.pt", "epoch-2.pt"}
    volume.now = 901.0
    volume.write("epoch-3.pt", b"3", at=3_000)
    volume.scan()
    assert objects.names() == {"epoch-1.pt", "epoch-2.pt"}, "what replaces it is not there yet"
    volume.scan()
    assert objects.names() == {"epoch-2.pt", "epoch-3.pt"}


def test_a_directory_that_is_gone_as_a_whole_removes_nothing(volume: Volume, objects: Objects) -> None:
    volume.write("model.pt", b"x")
    volume.settle()
    (volume.directory / "model.pt").unlink()
    volume.directory.rmdir()
    volume.now = 10_000.0
    with pytest.raises(FileNotFoundError):
        volume.scan()
    assert objects.names() == {"model.pt"}


def test_a_new_volume_gets_what_s3_has_with_its_time(volume: Volume, objects: Objects, tmp_path: Path) -> None:
    volume.write("checkpoint-5/model", b"model", at=1_234)
    volume.write("empty", b"", at=1_235)
    volume.settle()
    objects.stored[f"{PLACE.prefix}step-7/manifest.json"] = (b"ours", {})
    objects.stored[f"{PLACE.prefix}by-hand"] = (b"without a label", {})
    other = Volume(tmp_path / "second", objects)
    assert other.files.restore(cancelled=NEVER)
    found = {path.name: path.read_bytes() for path in other.directory.rglob("*") if path.is_file()}
    assert found == {"model": b"model", "empty": b"", "by-hand": b"without a label"}
    assert (other.directory / "checkpoint-5/model").stat().st_mtime == 1_234
    objects.order.clear()
    assert other.scan()
    assert not objects.order, "what came from there is not sent back"


@pytest.mark.parametrize("newest", ["best", "best/model"])
def test_a_file_and_a_folder_of_one_name_come_back_as_what_the_script_made_last(
    volume: Volume, objects: Objects, newest: str
) -> None:
    """What the script replaced stays in S3 for a quarter of an hour."""
    for name in ("best", "best/model"):
        at = str(2 if name == newest else 1)
        objects.stored[PLACE.prefix + name] = (name.encode(), {"spotkeep-modified-ns": at})
    assert volume.files.restore(cancelled=NEVER)
    [found] = [path for path in volume.directory.rglob("*") if path.is_file()]
    assert found == volume.directory / newest


def test_a_new_volume_without_anything_in_s3_has_no_directory_that_is_not_the_scripts(tmp_path: Path) -> None:
    """The runner makes it, as the user that trains; the agent is root."""
    volume = Volume(tmp_path, Objects())
    volume.directory.rmdir()
    assert volume.files.restore(cancelled=NEVER)
    assert not volume.directory.exists()


def test_a_volume_that_is_known_gets_nothing_and_asks_nothing(volume: Volume, objects: Objects, tmp_path: Path) -> None:
    volume.files.restore(cancelled=NEVER)
    volume.write("model.pt", b"x")
    volume.settle()
    (volume.directory / "model.pt").unlink()
    objects.problem = RemoteError("S3 was asked")
    again = ScriptFiles(
        PLACE,
        UserFiles(volume.directory.parent),
        kept=volume.directory.parent,
        objects=objects,
        fetching=objects,
        pace=Pace(None),
        clock=lambda: volume.now,  # type: ignore[arg-type]
    )
    assert not again.restore(cancelled=NEVER)
    assert not (volume.directory / "model.pt").exists(), "the script has removed it"
    objects.problem = None
    again.copy(settled_only=True)
    volume.now = 901.0
    again.copy(settled_only=True)
    assert not objects.stored, "a later instance removes it from S3"


def test_a_restore_that_was_cut_off_goes_on_and_replaces_nothing(
    volume: Volume, objects: Objects, tmp_path: Path
) -> None:
    for name in ("one", "two", "three"):
        volume.write(name, name.encode())
    volume.settle()
    other = Volume(tmp_path / "second", objects)
    other.write("one", b"newer here")
    objects.problem = RemoteError("cut")
    with pytest.raises(RemoteError):
        other.files.restore(cancelled=NEVER)
    objects.problem = None
    assert other.files.restore(cancelled=NEVER)
    assert {path.name: path.read_bytes() for path in other.directory.iterdir()} == {
        "one": b"newer here",
        "two": b"two",
        "three": b"three",
    }
    other.settle()
    assert objects.stored[f"{PLACE.prefix}one"][0] == b"newer here"


@pytest.mark.parametrize("text", ["", "[]", '{"place": "s3://other/", "files": {}}', '{"files": {"a": 1}}'])
def test_a_record_of_another_place_or_none_makes_the_volume_new(volume: Volume, objects: Objects, text: str) -> None:
    objects.stored[f"{PLACE.prefix}model.pt"] = (b"there", {})
    volume.directory.with_name("copied.json").write_text(text)
    assert volume.files.restore(cancelled=NEVER)
    assert (volume.directory / "model.pt").read_bytes() == b"there"


def test_a_link_is_followed_inside_the_directory_only(volume: Volume, objects: Objects, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of the agent")
    volume.write("epoch-5.ckpt", b"state")
    (volume.directory / "last.ckpt").symlink_to("epoch-5.ckpt")
    (volume.directory / "out").symlink_to(secret)
    (volume.directory / "nowhere").symlink_to("missing")
    os.mkfifo(volume.directory / "pipe")
    volume.settle()
    assert {name: raw for name, (raw, _) in objects.stored.items()} == {
        f"{PLACE.prefix}epoch-5.ckpt": b"state",
        f"{PLACE.prefix}last.ckpt": b"state",
    }


@pytest.mark.parametrize("left_whole", [True, False])
def test_at_the_end_all_is_copied_if_the_script_has_left_it_whole(
    volume: Volume, objects: Objects, left_whole: bool
) -> None:
    volume.write("old", b"old")
    volume.scan()
    volume.write("fresh", b"fresh, or half of it")
    volume.files.start()
    assert volume.files.finish(lambda: 30.0, left_whole=left_whole) is left_whole
    assert objects.names() == ({"old", "fresh"} if left_whole else {"old"})
    assert volume.files.finish(lambda: 0.0, left_whole=left_whole) is left_whole, "a second end changes nothing"


def test_an_end_without_s3_says_so(volume: Volume, objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.0)
    volume.write("model.pt", b"x")
    objects.problem = RemoteError("out of reach")
    volume.files.start()
    assert not volume.files.finish(lambda: 30.0, left_whole=True)


def test_a_directory_with_too_much_in_it_is_left_alone(
    volume: Volume, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_FILES", 3)
    for number in range(4):
        volume.write(str(number), b"x")
    with pytest.raises(OSError, match="more than 3 files of the script's own"):
        volume.scan()


def train_fold(directory: Path, *, steps: int) -> int:
    """One training of several of a script; gives the step that it went on from."""
    with Checkpointer({"weights": bytes(100)}, directory, every_steps=1, keep_last=2, name="fold-2") as checkpointer:
        began = checkpointer.step
        for _ in checkpointer.steps(steps):
            pass
    TRAININGS_HERE.forget()
    return began


def test_checkpoints_of_one_training_of_several_come_back_on_a_new_volume(
    volume: Volume, objects: Objects, tmp_path: Path
) -> None:
    train_fold(volume.directory, steps=3)
    assert volume.settle()
    of_each = [f"fold-2/step-{step}/{name}" for step in (2, 3) for name in ("data-00000.bin", "manifest.json")]
    assert [name for name in objects.order if name.startswith("fold-2/step-")] == of_each
    other = Volume(tmp_path / "second", objects)
    assert other.files.restore(cancelled=NEVER)
    assert train_fold(other.directory, steps=5) == 3


def test_a_manifest_is_not_in_s3_before_all_that_it_vouches_for(
    volume: Volume, objects: Objects, tmp_path: Path
) -> None:
    train_fold(volume.directory, steps=3)
    newest = volume.directory / "fold-2" / "step-3"
    volume.scan()
    os.utime(newest / "data-00000.bin", (1, 1))  # as one that is still being written
    assert not volume.scan()
    assert "fold-2/step-2/manifest.json" in objects.names()
    assert "fold-2/step-3/manifest.json" not in objects.names()
    other = Volume(tmp_path / "second", objects)
    other.files.restore(cancelled=NEVER)
    assert train_fold(other.directory, steps=3) == 2, "the older one is whole"
