"""The sync against the local AWS's S3, with the clock of a test: passes happen when the test waits for them."""

from __future__ import annotations

import io
import tempfile
import threading
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from spotkeep_local.service_base.clients import FROM_INSIDE
from spotkeep_local.training import checkpoint_sync
from spotkeep_local.training.checkpoint_sync import CheckpointSync
from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.object_store import ObjectStore, S3Location


@pytest.fixture
def store(local_aws):
    return ObjectStore(local_aws.session().client("s3", config=FROM_INSIDE))


@pytest.fixture
def remote(local_aws):
    bucket = f"sync-{uuid.uuid4().hex[:12]}"
    local_aws.session().client("s3").create_bucket(Bucket=bucket)
    return S3Location(bucket, "runs/checkpoints")


@pytest.fixture
def make_sync(store, remote, tmp_path):
    made = []

    def make(**values):
        settings = {"interval_seconds": 0.02, "upload_delay_seconds": 0.0} | values
        sync = CheckpointSync(**{"store": store, "remote": remote, "local": tmp_path} | settings)
        made.append(sync)
        return sync

    yield make
    for sync in made:
        sync.lose()
        sync.join()


def put(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def wait_until(condition):
    give_up_at = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.01)


def content(store, location):
    with tempfile.NamedTemporaryFile() as file:
        store.download(location, Path(file.name))
        return file.read()


def keys(store, remote):
    return {key.removeprefix("runs/checkpoints/") for key in store.list_keys(remote)}


def test_a_file_goes_up_with_a_marker_beside_it_and_again_when_it_changes(make_sync, store, remote, tmp_path):
    sync = make_sync()
    sync.start()
    put(tmp_path / "step-1/data", "1")
    wait_until((tmp_path / "step-1/data.sagemaker-uploaded").exists)
    assert keys(store, remote) == {"step-1/data"}
    put(tmp_path / "step-1/data", "22")
    wait_until(lambda: sync.uploads >= 2)
    sync.finish()
    assert content(store, remote.child("step-1/data")) == b"22"


def test_a_delayed_upload_shows_its_marker_meanwhile(make_sync, store, remote, tmp_path):
    make_sync(upload_delay_seconds=3600).start()
    (tmp_path / "data").write_text("1")
    wait_until((tmp_path / "data.sagemaker-uploading").exists)
    assert keys(store, remote) == set()


def test_what_was_restored_is_not_sent_back_and_its_deletion_is_mirrored(make_sync, store, remote, tmp_path):
    put(tmp_path / "first/old", "old")
    put(tmp_path / "first/kept", "kept")
    make_sync(local=tmp_path / "first").finish()
    sync = make_sync(local=tmp_path / "second")
    assert sync.restore() == 2
    sync.start()
    (tmp_path / "second/old").unlink()
    wait_until(lambda: sync.deletions == 1)
    sync.finish()
    assert sync.uploads == 0
    assert keys(store, remote) == {"kept"}


def test_a_file_is_in_s3_also_where_the_script_has_changed_it_since(make_sync, tmp_path):
    put(tmp_path / "latest.npz", "of epoch 1")
    sync = make_sync(upload_delay_seconds=0)
    sync.start()
    wait_until(lambda: sync.uploads == 1)
    sync.lose()
    sync.join()
    put(tmp_path / "latest.npz", "of epoch 2, in part")
    put(tmp_path / "never-sent.npz", "")
    assert sync.stored_files() == ("latest.npz",)
    assert sync.unsent_files() == ("latest.npz", "never-sent.npz")


def test_which_restored_files_were_read_is_seen(make_sync, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for name in ("model-001.h5", "model-002.h5", "log.txt", "empty"):
        put(first / name, "" if name == "empty" else name)
    make_sync(local=first).finish()
    sync = make_sync(local=second)
    sync.restore()
    assert sync.read_files() == ()
    sync.start()
    (second / "model-002.h5").read_text()
    # What is written anew was not read, though the upload reads it.
    (second / "log.txt").write_text("anew")
    put(second / "model-003.h5", "new")
    wait_until(lambda: sync.uploads == 2)
    assert sync.read_files() == ("model-002.h5",)


def test_where_the_disk_keeps_no_access_times_it_is_not_known_what_was_read(make_sync, tmp_path, monkeypatch):
    put(tmp_path / "first" / "model.h5", "weights")
    make_sync(local=tmp_path / "first").finish()
    sync = make_sync(local=tmp_path / "second")
    # Such a disk keeps the time that a file was given.
    stat = Path.stat

    def unmoved(path, **options):
        found = stat(path, **options)
        return SimpleNamespace(st_atime_ns=0, st_size=found.st_size, st_mtime_ns=found.st_mtime_ns, st_ino=found.st_ino)

    with monkeypatch.context() as without_access_times:
        without_access_times.setattr(checkpoint_sync.Path, "stat", unmoved)
        sync.restore()
    assert sync.read_files() is None


def test_checkpoints_that_cannot_be_files_fail_the_job_as_its_input(make_sync, store, remote):
    for name in ("x", "x/y"):
        store.upload(io.BytesIO(b"1"), remote.child(name))
    with pytest.raises(JobFailedError, match=r"^ClientError: Checkpoint download failed: .*runs/checkpoints: .*x"):
        make_sync().restore()


def test_only_files_below_the_prefix_are_restored(make_sync, store, remote, tmp_path):
    for key in ("runs/checkpoints/a", "runs/checkpoints-of-another/b", "runs/checkpoints/a.sagemaker-uploaded"):
        (tmp_path / "body").write_text(key)
        with (tmp_path / "body").open("rb") as body:
            store.upload(body, S3Location(remote.bucket, key))
    sync = make_sync(local=tmp_path / "local")
    assert sync.restore() == 1
    assert [path.name for path in (tmp_path / "local").iterdir()] == ["a"]


def test_a_bucket_that_is_not_there_fails_the_job(make_sync, tmp_path):
    gone = S3Location("no-such-bucket", "checkpoints")
    with pytest.raises(JobFailedError, match="Checkpoint download failed"):
        make_sync(remote=gone).restore()
    (tmp_path / "data").write_text("1")
    with pytest.raises(JobFailedError, match="Checkpoint upload failed"):
        make_sync(remote=gone).finish()


class _Stalling:
    """A store whose upload waits in the middle of the file until the test lets it go on."""

    def __init__(self, store, size):
        self._store = store
        self._size = size
        self.half_way = threading.Event()
        self.go_on = threading.Event()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def upload(self, body, location):
        read = body.read

        def stalling_read(size=-1):
            if body.tell() >= self._size // 2:
                self.half_way.set()
                assert self.go_on.wait(30)
            return read(size)

        body.read = stalling_read
        self._store.upload(body, location)


SIZE = 4 << 20


@pytest.fixture
def stalling(store):
    return _Stalling(store, SIZE)


@pytest.fixture
def half_sent(make_sync, stalling, tmp_path):
    """A sync that has sent half of the file `large`."""
    sync = make_sync(store=stalling)
    (tmp_path / "large").write_bytes(b"x" * SIZE)
    sync.start()
    assert stalling.half_way.wait(30)
    return sync


def test_a_half_sent_file_is_dropped_with_its_host(half_sent, stalling, store, remote):
    half_sent.lose()
    stalling.go_on.set()
    half_sent.join()
    assert half_sent.uploads == 0
    assert keys(store, remote) == set()


def test_of_several_hosts_one_sends_at_a_time_so_that_nothing_follows_the_file_after_which_all_are_lost(
    make_sync, stalling, store, remote, tmp_path
):
    turn, hosts = threading.Lock(), [tmp_path / "one", tmp_path / "two"]
    for host in hosts:
        host.mkdir()
    (hosts[0] / "large").write_bytes(b"x" * SIZE)
    (hosts[1] / "small").write_text("y")
    second = make_sync(local=hosts[1], turn=turn)
    first = make_sync(store=stalling, local=hosts[0], turn=turn, on_upload=second.lose)
    first.start()
    assert stalling.half_way.wait(30)
    second.start()
    wait_until((hosts[1] / "small.sagemaker-uploading").exists)
    stalling.go_on.set()
    wait_until(lambda: first.uploads == 1)
    second.join()
    assert keys(store, remote) == {"large"}


def test_a_file_that_shrinks_in_the_middle_is_sent_later(half_sent, stalling, store, remote, tmp_path):
    (tmp_path / "large").write_bytes(b"small")
    stalling.go_on.set()
    wait_until(lambda: half_sent.uploads == 1)
    assert content(store, remote.child("large")) == b"small"


def test_a_file_that_grows_in_the_middle_is_sent_as_it_was_and_again(half_sent, stalling, store, remote, tmp_path):
    with (tmp_path / "large").open("ab") as file:
        file.write(b"more")
    stalling.go_on.set()
    wait_until(lambda: half_sent.uploads == 2)
    assert content(store, remote.child("large")) == b"x" * SIZE + b"more"


def test_a_folder_that_vanishes_again_and_again_does_no_harm(make_sync, store, remote, tmp_path):
    sync = make_sync(interval_seconds=0.001)
    sync.start()
    for number in range(50):
        folder = tmp_path / f"step-{number}"
        folder.mkdir()
        (folder / "data").write_text(str(number))
        while folder.exists():
            for path in folder.iterdir():
                path.unlink(missing_ok=True)
            try:
                folder.rmdir()
            except OSError:
                continue
    (tmp_path / "last").write_text("last")
    sync.finish()
    assert keys(store, remote) == {"last"}
