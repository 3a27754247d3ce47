"""I2, whole or invisible: a checkpoint is complete and verified, or no reader ever takes it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep.disk import staged_state
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.manifest import CHUNK_BYTES
from spotkeep.disk.retention import Retention
from spotkeep.disk.storage import LocalStorage
from spotkeep.disk.upload_markers import UPLOADED_SUFFIX, UPLOADING_SUFFIX, UploadWatch
from spotkeep.errors import DamagedCheckpointError, LockLostError, SaveError
from spotkeep.state.encoding import encode_state


def state_of(step):
    return encode_state({"w": np.full(7, step, dtype="f4"), "v": np.arange(3) + step, "n": {"step": step}})


def newest_good(directory):
    """What a restart finds: the newest checkpoint that reads well, and what it holds."""
    for step in directory.steps():
        try:
            found = directory.read(step)
        except DamagedCheckpointError:
            continue
        assert found.state["n"] == {"step": step}
        assert found.state["w"].tolist() == [step] * 7
        assert found.state["v"].tolist() == [step, step + 1, step + 2]
        return step
    return None


def write(directory, *steps):
    for step in steps:
        directory.write(state_of(step), step=step)


def test_what_was_written_is_read(checkpoints):
    directory = checkpoints()
    size = directory.write(state_of(3), step=3, epochs_completed=1)
    found = directory.read(3)
    assert (found.step, found.epochs_completed) == (3, 1)
    assert newest_good(directory) == 3
    assert size == sum(path.stat().st_size for path in (directory.path / "step-3").iterdir())


class ListedFolders(LocalStorage):
    """A disk that notes the folders of checkpoints that are listed."""

    def __init__(self):
        self.listed = []

    def names(self, path):
        self.listed.append(path.name)
        return super().names(path)


def test_the_steps_are_found_with_one_listing_of_each_folder(checkpoints):
    write(checkpoints(), 3, 5)
    (checkpoints().path / "step-8").mkdir()
    storage = ListedFolders()
    assert checkpoints(storage=storage).steps() == [5, 3]
    assert sorted(name for name in storage.listed if name.startswith("step-")) == ["step-3", "step-5", "step-8"]


def test_a_step_that_is_not_whole_is_looked_for_once(checkpoints):
    (checkpoints().path / "step-8").mkdir(parents=True)
    storage = ListedFolders()
    with pytest.raises(DamagedCheckpointError):
        checkpoints(storage=storage).read_manifest(8)
    assert storage.listed.count("step-8") == 1


def test_steps_are_numbers_and_the_newest_comes_first(checkpoints):
    directory = checkpoints()
    write(directory, 999, 1000, 5)
    assert directory.steps() == [1000, 999, 5]


def test_everything_else_in_the_directory_is_passed_over(checkpoints):
    directory = checkpoints()
    write(directory, 5)
    (directory.path / "step-9").mkdir()
    (directory.path / "step-9" / "data-00000.bin").write_bytes(b"half")
    for name in ("step-7.sagemaker-uploading", "step-x", "step-07", "notes.txt", f"manifest.json{UPLOADED_SUFFIX}"):
        (directory.path / name).write_text("not a checkpoint")
    (directory.path / "step-8").write_text("a file")
    for marker in (UPLOADED_SUFFIX, UPLOADING_SUFFIX):
        (directory.path / "step-5" / f"manifest.json{marker}").write_text("")
    assert directory.steps() == [5]
    assert newest_good(directory) == 5


def test_an_empty_or_missing_directory_has_no_checkpoints(checkpoints):
    assert checkpoints().steps() == []


@pytest.mark.parametrize("case", ["a new step", "a damaged step again"])
def test_a_crash_before_any_file_operation_loses_nothing_that_was_written(
    tmp_path, checkpoints, faulty_storage, crash, case
):
    before = tmp_path / "before"
    directory = checkpoints()
    write(directory, 1, 2)
    if case == "a damaged step again":
        write(directory, 3)
        (directory.path / "step-3" / "data-00000.bin").write_bytes(b"damaged")
    shutil.copytree(directory.path, before)

    log = faulty_storage()
    write(checkpoints(storage=log), 3)
    assert newest_good(directory) == 3
    for operation in range(len(log.log)):
        shutil.rmtree(directory.path)
        shutil.copytree(before, directory.path)
        with pytest.raises(crash):
            write(checkpoints(storage=faulty_storage(crash_before=operation)), 3)
        after = checkpoints()
        # The rename is the moment from which on it exists.
        existed = "rename manifest.json" in log.log[:operation]
        assert newest_good(after) == (3 if existed else 2), f"crash before {log.log[operation]}"
        write(after, 3)
        assert newest_good(after) == 3


def test_pruning_reads_nothing_that_was_found_good_and_has_not_changed(checkpoints, monkeypatch):
    directory = checkpoints()
    write(directory, 1, 2, 3, 4, 5)
    read = []
    really_open = LocalStorage.open
    monkeypatch.setattr(
        LocalStorage, "open", lambda self, path: read.append(path.parent.name) or really_open(self, path)
    )
    os.utime(directory.path / "step-4" / "data-00000.bin")
    assert directory.prune(Retention(last=2)) == [3, 2, 1]
    assert set(read) == {"step-4"}


def test_a_crash_while_pruning_leaves_the_newest_two(tmp_path, checkpoints, faulty_storage, crash):
    before = tmp_path / "before"
    directory = checkpoints()
    write(directory, 1, 2, 3, 4)
    shutil.copytree(directory.path, before)
    log = faulty_storage()
    assert checkpoints(storage=log).prune(Retention(last=2)) == [2, 1]
    for operation in range(len(log.log)):
        shutil.rmtree(directory.path)
        shutil.copytree(before, directory.path)
        with pytest.raises(crash):
            checkpoints(storage=faulty_storage(crash_before=operation)).prune(Retention(last=2))
        after = checkpoints()
        assert after.steps()[:2] == [4, 3]
        for step in after.steps():
            after.verify(step)
        checkpoints().prune(Retention(last=2))
        assert sorted(path.name for path in directory.path.iterdir()) == ["step-3", "step-4"]


@pytest.mark.parametrize("state", [{"w": np.ones(7)}, {"n": 1}], ids=["with a data file", "without one"])
def test_the_data_is_on_the_disk_before_the_name_that_vouches_for_it(checkpoints, faulty_storage, state):
    storage = faulty_storage()
    checkpoints(storage=storage).write(encode_state(state), step=1)
    order = [entry for entry in storage.log if not entry.startswith(("write_some", "remove_file"))]
    assert order[-5:] == ["create manifest.json.draft", "sync", "rename manifest.json", "sync_directory step-1", "sync"]
    before = order[:-5]
    # Where it is found: the checkpoint in its directory, the file in the checkpoint.
    assert before.index("make_directory step-1") < before.index("sync_directory checkpoints")
    if "w" in state:
        assert before[-4:] == ["create data-00000.bin", "sync", "sync_directory step-1", "sync"]


def test_a_directory_below_one_that_is_gone_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError):
        LocalStorage().make_directory(Path("runs/one"))


def test_the_disk_has_the_names_of_all_directories_that_were_made_on_the_way(tmp_path, faulty_storage):
    storage = faulty_storage()
    write(CheckpointDirectory(tmp_path / "runs" / "one" / "checkpoints", storage=storage), 1)
    assert [entry for entry in storage.log if entry.startswith("sync_directory")] == [
        *(f"sync_directory {name}" for name in (tmp_path.name, "runs", "one", "checkpoints")),
        "sync_directory step-1",
        "sync_directory step-1",
    ]
    storage.log.clear()
    write(CheckpointDirectory(tmp_path / "runs" / "one" / "checkpoints", storage=storage), 2)
    assert [entry for entry in storage.log if entry.startswith("sync_directory")] == [
        "sync_directory checkpoints",
        "sync_directory step-2",
        "sync_directory step-2",
    ]


def test_a_full_disk_is_reported_and_hurts_no_older_checkpoint(checkpoints, faulty_storage):
    write(checkpoints(), 1)
    needed = sum(path.stat().st_size for path in (checkpoints().path / "step-1").iterdir())
    # The time in a manifest has up to three decimals, so another one may be a little shorter.
    enough = needed - len(".123")
    for free_bytes in [*range(0, enough, 250), enough - 1]:
        with pytest.raises(SaveError, match="the disk is full: give the job a larger volume"):
            write(checkpoints(storage=faulty_storage(free_bytes=free_bytes)), 2)
        assert [path.name for path in checkpoints().path.iterdir()] == ["step-1"], "what was written of it is removed"
    assert newest_good(checkpoints()) == 1


REFUSALS = {
    errno.ENOSPC: "give the job a larger volume",
    errno.EDQUOT: "the quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "this user may not write there",
    errno.EPERM: "this user may not write there",
    errno.EIO: "the device has failed",
    errno.ENXIO: "name a folder on another disk",
}


@pytest.mark.parametrize("number", REFUSALS)
@pytest.mark.parametrize("act", ["begin", "write", "remove"])
def test_a_disk_that_refuses_is_named_with_what_helps_against_that(checkpoints, monkeypatch, number, act):
    def refuse(*arguments, **options):
        raise OSError(number, os.strerror(number))

    directory = checkpoints()
    write(directory, 1)
    for operation in ("create", "remove_file"):
        monkeypatch.setattr(directory._storage, operation, refuse)
    acts = {
        "begin": lambda: directory.begin((1, 0), step=None),
        "write": lambda: write(directory, 2),
        "remove": lambda: directory.remove(1),
    }
    with pytest.raises(SaveError) as refused:
        acts[act]()
    assert f": {os.strerror(number)}; " in str(refused.value)
    assert [other for other in {*REFUSALS.values()} if other in str(refused.value)] == [REFUSALS[number]]


def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_all_of_them(checkpoints, faulty_storage):
    write(checkpoints(storage=faulty_storage(piece_bytes=300)), 1)
    assert newest_good(checkpoints()) == 1


def test_any_flipped_bit_in_any_file_is_noticed_and_named(checkpoints):
    directory = checkpoints()
    write(directory, 1)
    for path in sorted((directory.path / "step-1").iterdir()):
        raw = path.read_bytes()
        for position in [*range(0, len(raw), 53), len(raw) - 1]:
            altered = bytearray(raw)
            altered[position] ^= 1 << position % 8
            path.write_bytes(altered)
            for reading in (directory.read, directory.verify, checkpoints().read):
                with pytest.raises(DamagedCheckpointError) as damage:
                    reading(1)
                assert damage.value.file == f"step-1/{path.name}"
        path.write_bytes(raw)
    assert newest_good(directory) == 1


@pytest.mark.parametrize("change", [lambda raw: raw[:-1], lambda raw: raw + b"\0", lambda raw: b""])
@pytest.mark.parametrize("name", ["data-00000.bin", "manifest.json"])
def test_a_file_of_another_length_is_noticed(checkpoints, name, change):
    directory = checkpoints()
    write(directory, 1)
    path = directory.path / "step-1" / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DamagedCheckpointError):
        directory.read(1)


def test_a_missing_file_is_a_copy_that_was_cut_short(checkpoints):
    directory = checkpoints()
    write(directory, 1, 2)
    (directory.path / "step-2" / "data-00000.bin").unlink()
    with pytest.raises(DamagedCheckpointError, match="never written or copied whole"):
        directory.read(2)
    assert newest_good(directory) == 1


def test_a_checkpoint_under_another_name_is_refused(checkpoints):
    directory = checkpoints()
    write(directory, 1)
    (directory.path / "step-1").rename(directory.path / "step-100")
    with pytest.raises(DamagedCheckpointError, match="it belongs to step 1"):
        directory.read(100)


@pytest.mark.parametrize("name", ["data-00000.bin", "manifest.json"])
def test_links_and_pipes_are_not_followed(tmp_path, checkpoints, name):
    directory = checkpoints()
    write(directory, 1, 2)
    outside = tmp_path / "outside"
    (directory.path / "step-2" / name).rename(outside)
    (directory.path / "step-2" / name).symlink_to(outside)
    with pytest.raises(DamagedCheckpointError, match="not a regular file"):
        directory.read(2)
    (directory.path / "step-2" / name).unlink()
    os.mkfifo(directory.path / "step-2" / name)
    with pytest.raises(DamagedCheckpointError, match="not a regular file"):
        directory.read(2)
    (directory.path / "step-3").symlink_to(directory.path / "step-1")
    assert 3 not in directory.steps()


def test_a_file_larger_than_its_manifest_says_is_not_read_into_memory(checkpoints):
    directory = checkpoints()
    write(directory, 1)
    with (directory.path / "step-1" / "data-00000.bin").open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(DamagedCheckpointError, match="more than the"):
        directory.read(1)


def test_pruning_keeps_the_newest(checkpoints):
    directory = checkpoints()
    write(directory, 1, 2, 3, 4, 5)
    assert directory.prune(Retention(last=3)) == [2, 1]
    assert directory.steps() == [5, 4, 3]
    assert directory.prune(Retention(last=1)) == [3], "two always stay"
    assert directory.steps() == [5, 4]


def test_nothing_of_what_was_there_gets_into_a_checkpoint(checkpoints):
    arrays = {f"a{index}": np.full(100, index, dtype="u1") for index in range(5)}
    directory = checkpoints()
    directory.write(encode_state(arrays), step=1)
    (directory.path / "step-1" / "notes.txt").write_text("a stranger's")
    (directory.path / "step-1" / "folder").mkdir()
    write(directory, 1)
    assert sorted(path.name for path in (directory.path / "step-1").iterdir()) == ["data-00000.bin", "manifest.json"]


@pytest.mark.parametrize("again", [False, True], ids=["removed", "saved again"])
def test_who_reads_a_checkpoint_that_goes_reads_it_to_its_end(checkpoints, again):
    directory = checkpoints()
    write(directory, 1, 2, 3)
    with contextlib.closing(directory.open_data(1, directory.read_manifest(1).files[0])) as reading:
        before, after = bytearray(reading.size), bytearray(reading.size)
        reading.read_into(memoryview(before), 0)
        if again:
            directory.write(encode_state({"w": np.full(7, -1, dtype="f4")}), step=1)
        else:
            directory.prune(Retention(last=2))
            write(directory, 4)
        reading.read_into(memoryview(after), 0)
    assert after == before


@given(damaged=st.sets(st.integers(1, 6)), keep_last=st.integers(1, 4), restarted=st.booleans())
@settings(max_examples=15)
def test_pruning_never_counts_a_damaged_checkpoint_as_kept(tmp_path_factory, damaged, keep_last, restarted):
    path = tmp_path_factory.mktemp("pruning")
    directory = CheckpointDirectory(path)
    write(directory, *range(1, 7))
    for step in damaged:
        (path / f"step-{step}" / "data-00000.bin").write_bytes(b"damaged")
    if restarted:
        directory = CheckpointDirectory(path)
    good = [step for step in range(6, 0, -1) if step not in damaged]
    directory.prune(Retention(last=keep_last))
    kept = [step for step in directory.steps() if step not in damaged]
    assert kept[: max(2, keep_last)] == good[: max(2, keep_last)]
    if len(good) >= max(2, keep_last):
        assert directory.steps()[-1] == good[max(2, keep_last) - 1], "nothing older than the last one kept is left"
    shutil.rmtree(path)


def mark_uploaded(directory, step, *, suffix=UPLOADED_SUFFIX):
    for path in list((directory.path / f"step-{step}").iterdir()):
        path.with_name(path.name + suffix).write_text("")


def test_where_the_platform_copies_nothing_goes_before_its_successors_have_arrived(checkpoints):
    directory = checkpoints(platform_copies=True)
    write(directory, 1, 2, 3)
    assert directory.prune(Retention(last=2)) == []
    mark_uploaded(directory, 3)
    assert directory.prune(Retention(last=2)) == [], "one copy is not two"
    mark_uploaded(directory, 2)
    assert directory.prune(Retention(last=2)) == [1]
    assert sorted(path.name for path in directory.path.iterdir()) == ["step-2", "step-3"], "its markers go with it"


@settings(max_examples=20)
@given(uploaded=st.lists(st.booleans(), min_size=1, max_size=6), keep_last=st.integers(min_value=1, max_value=4))
def test_where_the_platform_copies_the_newest_two_that_have_arrived_stay_and_all_that_are_newer(uploaded, keep_last):
    with tempfile.TemporaryDirectory() as folder:
        directory = CheckpointDirectory(Path(folder), uploads=UploadWatch(platform_copies=True))
        steps = range(1, len(uploaded) + 1)
        write(directory, *steps)
        arrived = [step for step, is_there in zip(steps, uploaded, strict=True) if is_there]
        for step in arrived:
            mark_uploaded(directory, step)
        directory.prune(Retention(last=keep_last))
        oldest = min([*arrived[-2:], *steps[-max(2, keep_last) :]]) if len(arrived) >= 2 else 1
        assert directory.steps() == [*range(len(uploaded), oldest - 1, -1)]


def test_data_files_have_a_limit_and_load_one_after_the_other(checkpoints, monkeypatch):
    monkeypatch.setattr(staged_state, "MAX_FILE_BYTES", CHUNK_BYTES)
    arrays = {f"a{index}": np.full(2**19 - 100, index, dtype="u1") for index in range(5)}
    directory = checkpoints()
    directory.write(encode_state(arrays), step=1)
    names = sorted(path.name for path in (directory.path / "step-1").iterdir())
    assert names == ["data-00000.bin", "data-00001.bin", "data-00002.bin", "manifest.json"]
    restored = directory.read(1).state
    assert {name: value.tolist() for name, value in restored.items()} == {n: v.tolist() for n, v in arrays.items()}


def test_damage_says_where_in_the_file_it_is(checkpoints):
    directory = checkpoints()
    size = CHUNK_BYTES + 4096
    directory.write(encode_state({"w": np.ones(size, dtype="u1")}), step=5)
    with (directory.path / "step-5" / "data-00000.bin").open("r+b") as file:
        file.seek(CHUNK_BYTES + 7)
        file.write(b"\0")
    with pytest.raises(DamagedCheckpointError) as failure:
        directory.read(5)
    assert failure.value.offsets == (CHUNK_BYTES, size)


def writer(checkpoints, attempt, *, step=None):
    """A writer of a run, which has gone on from a step."""
    directory = checkpoints()
    directory.begin((attempt, 0), step=step)
    return directory


def without_note(checkpoints, faulty_storage, attempt):
    """A writer of a run on a full disk, which has refused its note."""
    directory = checkpoints(storage=faulty_storage(free_bytes=0))
    with pytest.raises(SaveError):
        directory.begin((attempt, 0), step=None)
    return directory


def names(directory):
    return sorted(path.name for path in directory.path.iterdir())


def folders(directory):
    return [name for name in names(directory) if name.startswith("step-")]


class TestWritersOfARun:
    """I1: a writer that was replaced overwrites nothing, and no reader takes what it writes."""

    def test_the_token_is_in_the_name_of_each_checkpoint(self, checkpoints):
        directory = writer(checkpoints, 3)
        write(directory, 5)
        assert names(directory) == ["step-5-3.0.1", "writers-3.0.1.json"]
        assert newest_good(checkpoints()) == 5

    def test_a_replaced_writer_saves_nothing_more_and_removes_nothing(self, checkpoints):
        first = writer(checkpoints, 1)
        write(first, 5, 10)
        second = writer(checkpoints, 2, step=10)
        with pytest.raises(LockLostError, match=r"belongs to a later writer of this run, 2\.0\.1, and this process is"):
            write(first, 15)
        assert first.prune(Retention(last=2)) == []
        write(second, 15, 20)
        assert first.prune(Retention(last=2)) == []
        assert checkpoints().steps() == [20, 15, 10, 5]

    def test_a_writer_that_is_replaced_while_it_writes_leaves_no_checkpoint(self, checkpoints, monkeypatch):
        first = writer(checkpoints, 1)
        write_files = first._write_files

        def write_and_be_replaced(*arguments, **options):
            written = write_files(*arguments, **options)
            writer(checkpoints, 2)
            return written

        monkeypatch.setattr(first, "_write_files", write_and_be_replaced)
        with pytest.raises(LockLostError):
            write(first, 5)
        assert checkpoints().steps() == []

    def test_no_reader_takes_what_a_replaced_writer_saved_on_another_disk(self, checkpoints, tmp_path):
        first = writer(checkpoints, 1)
        write(first, 5, 10)
        second = writer(lambda: CheckpointDirectory(tmp_path / "other"), 2, step=5)
        write(second, 8)
        write(first, 15)  # it has not seen the note
        for path in first.path.glob("step-*"):
            shutil.copytree(path, second.path / path.name)
        assert second.steps() == [8, 5]

    def test_the_later_one_of_two_writers_of_a_step_is_read(self, checkpoints):
        first = writer(checkpoints, 1)
        write(first, 5, 10)
        second = writer(checkpoints, 2, step=5)
        second.write(encode_state({"n": "second"}), step=10)
        reader = checkpoints()
        assert reader.steps() == [10, 5]
        assert reader.read(10).state == {"n": "second"}
        assert second.read(10).state == {"n": "second"}

    def test_what_was_saved_beyond_its_step_is_removed_once_newer_ones_are_good(self, checkpoints):
        first = writer(checkpoints, 1)
        write(first, 5, 10, 15)
        second = writer(checkpoints, 2, step=5)
        write(second, 8)
        assert "step-15-1.0.1" in names(second)
        second.prune(Retention(last=2))
        assert [name for name in names(second) if name.startswith("step-")] == ["step-5-1.0.1", "step-8-2.0.1"]

    def test_a_step_that_goes_takes_every_writers_checkpoint_of_it(self, checkpoints):
        first = writer(checkpoints, 1)
        write(first, 5, 10)
        second = writer(checkpoints, 2, step=10)
        write(second, 10)
        second.remove(10)
        assert checkpoints().steps() == [5]

    def test_two_notes_stay(self, checkpoints):
        for attempt in range(1, 5):
            directory = writer(checkpoints, attempt, step=None if attempt == 1 else 20)
            write(directory, 10 * attempt, 10 * attempt + 5)
            directory.prune(Retention(last=2))
        assert [name for name in names(directory) if name.startswith("writers")] == [
            "writers-3.0.1.json",
            "writers-4.0.1.json",
        ]
        assert list(map(str, directory.writer_notes.writers().began)) == ["1.0.1", "2.0.1", "3.0.1", "4.0.1"]

    def test_a_note_that_cannot_be_read_is_passed_over_and_its_token_is_not_given_again(self, checkpoints, caplog):
        first = writer(checkpoints, 1)
        write(first, 5)
        note = first.path / "writers-1.0.1.json"
        note.write_bytes(note.read_bytes()[:20])
        second = writer(checkpoints, 1, step=5)
        assert "passing over the note writers-1.0.1.json" in caplog.text
        assert str(second.writer_notes.token) == "1.0.2"
        assert second.steps() == [5]

    def test_a_note_that_cannot_be_read_is_named_once(self, checkpoints, caplog):
        first = writer(checkpoints, 1)
        (first.path / "writers-1.0.1.json").write_bytes(b"")
        second = writer(checkpoints, 1, step=None)
        caplog.clear()
        notes = checkpoints().writer_notes
        for _ in range(3):
            notes.writers()
        assert caplog.text.count("passing over the note writers-1.0.1.json") == 1
        assert str(second.writer_notes.token) == "1.0.2"

    def test_a_full_disk_leaves_no_part_of_a_note(self, checkpoints, monkeypatch):
        directory = checkpoints()

        def full(descriptor, raw, offset):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(LocalStorage, "write_some", lambda _, *arguments: full(*arguments))
            with pytest.raises(SaveError, match="No space left"):
                directory.begin((1, 0), step=None)
        assert not [name for name in names(directory) if name.startswith("writers")]
        directory.begin((1, 0), step=None)
        assert str(directory.writer_notes.token) == "1.0.1"

    def test_an_earlier_lock_is_refused_before_anything_is_read(self, checkpoints):
        writer(checkpoints, 2)
        with pytest.raises(LockLostError, match="this process is attempt 1, lease 0"):
            checkpoints().writer_notes.require_lock((1, 0))
        with pytest.raises(LockLostError):
            writer(checkpoints, 1)

    def test_a_writer_outside_of_a_run_goes_on_after_the_writers_of_one(self, checkpoints):
        write(writer(checkpoints, 3), 5)
        directory = checkpoints()
        directory.begin(None, step=5)
        write(directory, 10)
        assert names(directory)[:2] == ["step-10-3.0.2", "step-5-3.0.1"]
        assert newest_good(checkpoints()) == 10

    def test_outside_of_a_run_there_is_neither_token_nor_note(self, checkpoints):
        directory = checkpoints()
        directory.begin(None, step=None)
        write(directory, 5)
        assert names(directory) == ["step-5"]

    def test_a_full_disk_names_the_note_and_the_way_out(self, checkpoints, faulty_storage):
        with pytest.raises(SaveError, match=r"the note of the writer 1\.0\.1 cannot be written .* No space left"):
            checkpoints(storage=faulty_storage(free_bytes=0)).begin((1, 0), step=None)

    @pytest.mark.parametrize("attempt", [1, 2])
    def test_a_writer_without_a_note_makes_room_from_those_before_it(self, checkpoints, faulty_storage, attempt):
        write(writer(checkpoints, 1), 5, 10, 15)
        refused = without_note(checkpoints, faulty_storage, attempt)
        assert refused.prune(Retention(last=2)) == [5]
        assert folders(refused) == ["step-10-1.0.1", "step-15-1.0.1"]

    @pytest.mark.parametrize("attempt", [1, 2])
    @pytest.mark.parametrize("later", [1, 2, 3])
    def test_a_writer_without_a_note_removes_nothing_once_another_one_has_begun(
        self, checkpoints, faulty_storage, attempt, later
    ):
        write(writer(checkpoints, 1), 5, 10, 15)
        refused = without_note(checkpoints, faulty_storage, attempt)
        write(writer(checkpoints, max(attempt, later), step=15), 20, 25)
        before = names(refused)
        assert refused.prune(Retention(last=2)) == []
        assert names(refused) == before

    def test_a_writer_without_a_note_leaves_the_folders_of_its_token_to_its_owner(self, checkpoints, faulty_storage):
        write(writer(checkpoints, 1), 5, 10, 15)
        refused = without_note(checkpoints, faulty_storage, 2)
        shutil.copytree(refused.path / "step-5-1.0.1", refused.path / "step-5-2.0.1")
        refused.prune(Retention(last=2))
        assert folders(refused) == ["step-10-1.0.1", "step-15-1.0.1", "step-5-2.0.1"]

    def test_wherever_the_process_dies_the_next_writer_goes_on_from_what_was_durable(
        self, tmp_path, checkpoints, faulty_storage, crash
    ):
        write(writer(checkpoints, 1), 5, 10)
        kept = tmp_path / "kept"
        shutil.copytree(checkpoints().path, kept)
        operation, ended = 0, False
        while not ended:
            shutil.rmtree(checkpoints().path)
            shutil.copytree(kept, checkpoints().path)
            directory = checkpoints(storage=faulty_storage(crash_before=operation))
            try:
                directory.begin((2, 0), step=5)
                write(directory, 7)
                directory.prune(Retention(last=2))
                ended = True
            except crash:
                operation += 1
            third = writer(checkpoints, 3, step=newest_good(checkpoints()))
            assert third.steps()[0] in (5, 7, 10)
            assert newest_good(third) == third.steps()[0]
        assert operation > 10
        assert third.steps() == [7, 5]


def test_all_but_one_checkpoint_go_of_any_writer_and_whole_or_not(checkpoints):
    directory = checkpoints()
    write(directory, 1, 2, 3)
    (directory.path / "step-3" / "manifest.json").unlink()
    (directory.path / "step-2-9.9.9").mkdir()
    (directory.path / "own").mkdir()
    directory.keep_only("step-2")
    assert sorted(path.name for path in directory.path.iterdir()) == ["own", "step-2"]
    assert directory.steps() == [2]
    directory.keep_only(None)
    assert [path.name for path in directory.path.iterdir()] == ["own"]
