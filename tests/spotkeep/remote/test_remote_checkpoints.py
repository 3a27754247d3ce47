"""The second tier, with the real SDK against the local AWS: whole or invisible, verified both ways, resumed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import spotkeep
from spotkeep import DamagedCheckpointError, NewerFormatError, RemoteError, SaveError, UsageError
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.manifest import CHUNK_BYTES, Manifest, Progress, RankShare, manifest_bytes
from spotkeep.disk.retention import Best, Retention
from spotkeep.disk.staged_state import StagedState
from spotkeep.errors import LockLostError
from spotkeep.ranks.rank_shares import encode_share
from spotkeep.ranks.shared_directory import SharedDirectory
from spotkeep.remote.remote_checkpoints import RemoteCheckpoints
from spotkeep.remote.s3_objects import S3Objects, S3Place
from spotkeep.remote.transfer import Pace, TransferCancelledError
from spotkeep.state.encoding import encode_state

LARGE = 20 * CHUNK_BYTES  # three parts
NEVER = threading.Event()


@pytest.fixture(scope="module")
def objects():
    """Clients take long to make; one is enough, but not before the environment says where it belongs."""
    made = []

    def of(bucket):
        if not made:
            made.append(S3Objects(bucket))
        return S3Objects(bucket, client=made[0]._client)

    return of


@pytest.fixture
def machines(tmp_path, bucket, network, objects, monkeypatch):
    """Gives a machine by name: a directory of its own, and the place in S3 that they share."""
    monkeypatch.setattr("spotkeep.remote.remote_checkpoints._FIRST_PAUSE_SECONDS", 0.001)

    def machine(name):
        directory = CheckpointDirectory(tmp_path / name)
        place = S3Place(bucket=bucket.name, prefix="run/")
        return directory, RemoteCheckpoints(place, directory, objects=objects(bucket.name))

    return machine


def save(directory, step, *, size=5000, metrics=None):
    state = {"w": np.random.default_rng(step).integers(0, 256, size, dtype="u1"), "step": step}
    directory.write(encode_state(state), step=step, metrics=metrics)
    return state


def send(remote, step, pace=None):
    upload = remote.open(step)
    try:
        remote.send(upload, pace=pace or Pace(None))
    finally:
        upload.close()
    return upload


def sent(machines, **options):
    """A machine whose checkpoint of step 3 is in S3, its way there, and the state."""
    here, remote = machines("here")
    state = save(here, 3, **options)
    send(remote, 3)
    return here, remote, state


def is_that_of(directory, step, state):
    return directory.read(step).state["w"].tobytes() == state["w"].tobytes()


def names(bucket):
    return sorted(found.key for found in bucket.objects.all())


def test_what_one_machine_sends_another_one_gets(machines, bucket):
    here, remote = machines("here")
    state = save(here, 3, size=LARGE)
    assert remote.steps() == []
    upload = send(remote, 3)
    assert upload.done_bytes == upload.sent_bytes == upload.total_bytes
    assert names(bucket) == ["run/step-3/data-00000.bin", "run/step-3/manifest.json"]
    there, remote = machines("there")
    assert remote.steps() == [3]
    brought: list[int] = []
    assert remote.fetch(3, cancelled=NEVER, on_brought=brought.append) == upload.total_bytes
    data_bytes = (here.path / "step-3" / "data-00000.bin").stat().st_size
    assert sum(brought) == data_bytes
    remote.fetch(3, cancelled=NEVER, on_brought=brought.append)
    assert sum(brought) == 2 * data_bytes, "a file that is there is checked"
    assert is_that_of(there, 3, state)
    for name in ("data-00000.bin", "manifest.json"):
        assert (there.path / "step-3" / name).read_bytes() == (here.path / "step-3" / name).read_bytes()


def test_what_several_ranks_wrote_arrives_as_one(machines, world):
    here, remote = machines("here")

    def write(ranks):
        common, own = encode_state({"w": np.arange(9)}), encode_state({"rng": np.full(3, ranks.rank)})
        encoded = encode_share(common, own, rank=ranks.rank, own_bytes=[24] * 3)
        staged = StagedState()
        images = staged.arrange(encoded.parts)
        staged.copy(images)
        return SharedDirectory(here.path, ranks=ranks).write_images(
            images, encoded.document, step=3, progress=Progress()
        )

    sizes = world(3).run(write)
    assert send(remote, 3).total_bytes == sizes[0]
    there, remote = machines("there")
    assert remote.fetch(3, cancelled=NEVER) == sizes[0]
    state = there.read(3).state
    assert [state[f"rank {rank}"]["rng"].tolist() for rank in range(3)] == [[rank] * 3 for rank in range(3)]


def test_the_manifest_goes_last(machines, network):
    sent(machines, size=LARGE)
    changes = [request for request in network.requests if not request.startswith(("GET", "HEAD"))]
    assert len(changes) == 6, "begun, three parts, put together, the manifest"
    assert "manifest.json" in changes[-1]
    assert not any("manifest.json" in change for change in changes[:-1])


def test_every_byte_that_is_sent_waits_for_its_turn(machines):
    sizes = []

    class Turns(Pace):
        def wait(self, size, *, cancelled):
            sizes.append(size)

    here, remote = machines("here")
    save(here, 3, size=LARGE)
    send(remote, 3, pace=Turns(1.0))
    assert sum(sizes) == (here.path / "step-3" / "data-00000.bin").stat().st_size


def test_a_checkpoint_that_is_there_is_not_sent_again(machines, network):
    _, remote, _ = sent(machines, size=LARGE)
    network.requests.clear()
    upload = send(remote, 3)
    assert [request.split()[0] for request in network.requests] == ["HEAD"]
    assert (upload.sent_bytes, upload.done_bytes) == (0, upload.total_bytes)


def test_another_checkpoint_of_the_same_step_is_invisible_until_it_is_whole(machines, network):
    here, remote, _ = sent(machines)
    state = {"w": np.zeros(9000, dtype="u1")}
    here.write(encode_state(state), step=3)
    network.fault = lambda request: 403 if request.startswith("PUT") and "data-" in request else None
    with pytest.raises(RemoteError, match="cannot be written"):
        send(remote, 3)
    assert remote.steps() == []
    network.fault = lambda request: None
    send(remote, 3)
    there, remote = machines("there")
    remote.fetch(3, cancelled=NEVER)
    assert is_that_of(there, 3, state)


class Sometimes:
    """Spoils every n-th request of some kind."""

    def __init__(self, fault, *, every, of):
        self.fault, self.every, self.of, self.count = fault, every, of, 0
        self.lock = threading.Lock()

    def __call__(self, request):
        with self.lock:
            self.count += request.startswith(self.of)
            return self.fault if request.startswith(self.of) and self.count % self.every == 0 else None


@pytest.mark.parametrize("fault", [503, "cut"])
def test_throttles_faults_and_cut_connections_are_no_end(machines, network, fault):
    here, remote = machines("here")
    state = save(here, 3, size=LARGE)
    network.fault = Sometimes(fault, every=2, of=("PUT", "POST", "HEAD"))
    send(remote, 3)
    assert network.fault.count > 6
    there, remote = machines("there")
    network.fault = Sometimes(fault, every=2, of="GET")
    assert remote.steps() == [3]
    remote.fetch(3, cancelled=NEVER)
    assert is_that_of(there, 3, state)


def test_a_download_that_is_cut_in_the_middle_goes_on(machines, network):
    _, remote, state = sent(machines, size=LARGE)
    there, remote = machines("there")
    network.fault = Sometimes("half", every=2, of="GET /" + remote.place.bucket + "/run/")
    remote.fetch(3, cancelled=NEVER)
    assert is_that_of(there, 3, state)


KILLED = """
import sys
from pathlib import Path
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.remote.remote_checkpoints import RemoteCheckpoints
from spotkeep.remote.s3_objects import S3Objects, S3Place
from spotkeep.remote.transfer import Pace
remote = RemoteCheckpoints(S3Place.parse(sys.argv[2]), CheckpointDirectory(Path(sys.argv[1])))
upload = remote.open(3)
print("sending", flush=True)
remote.send(upload, pace=Pace(None))
"""


def test_an_upload_that_was_killed_between_parts_is_resumed(machines, network, bucket):
    here, remote = machines("here")
    state = save(here, 3, size=LARGE)
    two_parts = threading.Event()
    held = threading.Event()

    def hold_the_third(request):
        if request.startswith("PUT") and "partNumber" in request:
            parts = [seen for seen in network.requests if seen.startswith("PUT") and "partNumber" in seen]
            if len(parts) == 3:
                two_parts.set()
                held.wait(60)

    network.fault = hold_the_third
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(here.path), f"s3://{bucket.name}/run"],
        env={**os.environ, "PYTHONPATH": str(Path(spotkeep.__file__).parents[1])},
        stdout=subprocess.DEVNULL,
    )
    with process:
        assert two_parts.wait(60)
        process.send_signal(signal.SIGKILL)
    # The two others may still be on their way to the local AWS when the third is held.
    upload_id = wait_for_two_parts(bucket)
    held.set()
    assert process.returncode == -signal.SIGKILL
    assert remote.steps() == []
    network.fault = lambda request: None
    network.requests.clear()
    upload = send(remote, 3)
    sent = [request for request in network.requests if request.startswith("PUT") and "partNumber" in request]
    assert len(sent) <= 1, "the third part may have arrived after its sender was gone"
    assert all(upload_id in request for request in sent)
    assert upload.sent_bytes < upload.total_bytes
    assert list(bucket.multipart_uploads.all()) == []
    there, remote = machines("there")
    remote.fetch(3, cancelled=NEVER)
    assert is_that_of(there, 3, state)


def wait_for_two_parts(bucket):
    while True:
        for upload in bucket.multipart_uploads.all():
            if len(list(upload.parts.all())) >= 2:
                return upload.id


def test_parts_of_other_bytes_are_sent_again(machines, bucket):
    here, remote = machines("here")
    state = save(here, 3, size=LARGE)
    key = "run/step-3/data-00000.bin"
    begun = bucket.Object(key).initiate_multipart_upload(ChecksumAlgorithm="CRC32")
    begun.Part(1).upload(Body=b"\0" * 8 * CHUNK_BYTES)
    upload = send(remote, 3)
    assert upload.sent_bytes == upload.total_bytes
    there, remote = machines("there")
    remote.fetch(3, cancelled=NEVER)
    assert is_that_of(there, 3, state)


def test_who_may_not_list_uploads_sends_all_of_it(machines, network):
    here, remote = machines("here")
    save(here, 3, size=LARGE)
    network.fault = lambda request: 403 if request.startswith("GET") else None
    send(remote, 3)
    network.fault = lambda request: None
    assert remote.steps() == [3]


def test_bytes_that_went_wrong_on_the_way_are_refused_by_s3(machines, monkeypatch):
    here, remote = machines("here")
    save(here, 3, size=LARGE)
    monkeypatch.setattr("spotkeep.remote.s3_objects._as_sent", lambda checksum: "AAAAAA==")
    with pytest.raises(RemoteError):
        send(remote, 3)
    assert remote.steps() == []


def test_a_local_file_that_was_altered_is_not_uploaded(machines, bucket):
    here, remote = machines("here")
    save(here, 3, size=LARGE)
    upload = remote.open(3)
    with (here.path / "step-3" / "data-00000.bin").open("r+b") as file:
        file.seek(9 * CHUNK_BYTES)
        file.write(b"\xff\x00\xff")
    with pytest.raises(DamagedCheckpointError, match="chunk 9"):
        remote.send(upload, pace=Pace(None))
    upload.close()
    assert remote.steps() == []


def test_a_checkpoint_that_is_being_uploaded_may_be_removed_from_the_disk(machines):
    here, remote = machines("here")
    state = save(here, 3)
    upload = remote.open(3)
    save(here, 4)
    save(here, 5)
    assert here.prune(Retention(last=2)) == [3]
    remote.send(upload, pace=Pace(None))
    upload.close()
    there, remote = machines("there")
    remote.fetch(3, cancelled=NEVER)
    assert is_that_of(there, 3, state)


def test_an_upload_that_is_cancelled_stops_before_the_next_part(machines, bucket):
    here, remote = machines("here")
    save(here, 3, size=LARGE)
    upload = remote.open(3)
    upload.cancelled.set()
    with pytest.raises(TransferCancelledError):
        remote.send(upload, pace=Pace(None))
    upload.close()
    assert names(bucket) == []


def test_a_download_that_was_broken_off_fetches_only_what_is_missing(machines, network, bucket):
    here, remote, state = sent(machines, size=LARGE)
    there, remote = machines("there")
    broken_off = threading.Event()

    def after_the_manifest(request):
        if request.startswith("GET") and "manifest.json" in request:
            broken_off.set()

    network.fault = after_the_manifest
    with pytest.raises(TransferCancelledError):
        remote.fetch(3, cancelled=broken_off)
    assert there.steps() == [], "what is not whole is no checkpoint"
    # As if only the first part had come: a crash may leave any of them.
    with (there.path / "step-3" / "data-00000.bin.draft").open("r+b") as file:
        file.truncate(8 * CHUNK_BYTES)
        file.seek(0)
        file.write((here.path / "step-3" / "data-00000.bin").read_bytes()[: 8 * CHUNK_BYTES])
    network.requests.clear()
    remote.fetch(3, cancelled=NEVER)
    assert len([request for request in network.requests if "data-" in request and request.startswith("GET")]) == 2
    assert is_that_of(there, 3, state)


def test_a_file_that_is_whole_here_is_not_fetched_again(machines, network):
    here, remote, state = sent(machines)
    (here.path / "step-3" / "manifest.json").unlink()
    network.requests.clear()
    remote.fetch(3, cancelled=NEVER)
    assert not [request for request in network.requests if "data-" in request and request.startswith("GET")]
    assert is_that_of(here, 3, state)


def test_a_damaged_local_copy_is_replaced_and_who_reads_it_meanwhile_reads_what_it_was(machines):
    here, remote, state = sent(machines)
    data = here.path / "step-3" / "data-00000.bin"
    damaged = b"\xff" + data.read_bytes()[1:]
    data.write_bytes(damaged)
    with data.open("rb", buffering=0) as reading:
        remote.fetch(3, cancelled=NEVER)
        assert reading.read() == damaged
    assert is_that_of(here, 3, state)
    assert sorted(path.name for path in data.parent.iterdir()) == ["data-00000.bin", "manifest.json"]


def test_bytes_that_were_altered_in_s3_are_named(machines, bucket):
    here, remote, _ = sent(machines, size=LARGE)
    raw = bytearray((here.path / "step-3" / "data-00000.bin").read_bytes())
    raw[17 * CHUNK_BYTES + 5] ^= 1
    bucket.Object("run/step-3/data-00000.bin").put(Body=bytes(raw))
    there, remote = machines("there")
    with pytest.raises(DamagedCheckpointError, match="chunk 17") as damage:
        remote.fetch(3, cancelled=NEVER)
    assert damage.value.file == f"s3://{bucket.name}/run/step-3/data-00000.bin"
    assert damage.value.offsets == (17 * CHUNK_BYTES, 18 * CHUNK_BYTES)
    assert there.steps() == []


def seal(body):
    return b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'","manifest":' + body + b"}\n"


def hostile_manifest(files, *, step=3, **fields):
    document = {
        **json.loads(manifest_bytes(Manifest(step, None, 1.0, "spotkeep", ((),), {"dict": []})))["manifest"],
        "files": files,
        **fields,
    }
    return seal(json.dumps(document).encode())


HOSTILE = {
    "a name that leads elsewhere": hostile_manifest([{"name": "../../evil", "size": 1, "chunks": ["00000000"]}]),
    "an absolute name": hostile_manifest([{"name": "/tmp/evil", "size": 1, "chunks": ["00000000"]}]),
    "a size that no disk has": hostile_manifest([{"name": "data-00000.bin", "size": 2**60, "chunks": []}]),
    "a file that is not there": hostile_manifest([{"name": "data-00000.bin", "size": 1, "chunks": ["00000000"]}]),
    "another step": hostile_manifest([], step=4),
    "nothing": b"",
    "no manifest at all": b"<html>",
    "an altered one": hostile_manifest([])[:-9] + b"evil}}}}\n",
}


@pytest.mark.parametrize("manifest", HOSTILE.values(), ids=HOSTILE)
def test_what_a_hostile_bucket_holds_cannot_hurt(machines, bucket, tmp_path, manifest):
    bucket.Object("run/step-3/manifest.json").put(Body=manifest)
    there, remote = machines("there")
    with pytest.raises(DamagedCheckpointError):
        remote.fetch(3, cancelled=NEVER)
    assert there.steps() == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_manifest_from_the_future_is_no_damage(machines, bucket):
    bucket.Object("run/step-3/manifest.json").put(Body=hostile_manifest([], format=999))
    with pytest.raises(NewerFormatError):
        machines("there")[1].fetch(3, cancelled=NEVER)


def test_a_manifest_that_would_fill_the_memory_is_not_read(machines, bucket, monkeypatch):
    monkeypatch.setattr("spotkeep.remote.remote_checkpoints.MAX_MANIFEST_BYTES", 1000)
    bucket.Object("run/step-3/manifest.json").put(Body=b" " * 1001)
    with pytest.raises(DamagedCheckpointError, match="1,001 bytes"):
        machines("there")[1].fetch(3, cancelled=NEVER)


def test_a_server_that_answers_more_than_was_asked_for_does_not_fill_the_memory(machines, network):
    sent(machines)
    there, remote = machines("there")
    network.fault = lambda request: b"x" * 50_000_000 if request.startswith("GET") and "data-" in request else None
    with pytest.raises(DamagedCheckpointError, match="chunk 0"):
        remote.fetch(3, cancelled=NEVER)
    assert there.steps() == []


def test_a_link_in_the_directory_is_not_followed(machines, tmp_path):
    _, remote, state = sent(machines)
    there, remote = machines("there")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    there.path.mkdir()
    (there.path / "step-3").symlink_to(outside)
    remote.fetch(3, cancelled=NEVER)
    assert sorted(path.name for path in outside.iterdir()) == ["precious"]
    (there.path / "step-3" / "data-00000.bin").unlink()
    (there.path / "step-3" / "data-00000.bin").symlink_to(outside / "precious")
    remote.fetch(3, cancelled=NEVER)
    assert (outside / "precious").read_text() == "kept"
    assert is_that_of(there, 3, state)


def test_a_disk_that_is_too_small_is_reported_before_anything_is_fetched(machines, monkeypatch):
    sent(machines)
    _, remote = machines("there")
    monkeypatch.setattr(
        "spotkeep.remote.remote_checkpoints.shutil.disk_usage", lambda path: type("", (), {"free": 100})
    )
    with pytest.raises(SaveError, match="that much is not free; the disk is full: give the job a larger volume"):
        remote.fetch(3, cancelled=NEVER)


def test_strangers_in_the_bucket_are_passed_over(machines, bucket):
    for key in (
        "run/step-3x/manifest.json",
        "run/step-3/a/manifest.json",
        "run/manifest.json",
        "other/step-9/manifest.json",
    ):
        bucket.Object(key).put(Body=b"?")
    bucket.Object("run/step-007/manifest.json").put(Body=b"?")
    assert machines("there")[1].steps() == []


def test_a_prefix_with_too_much_in_it_is_refused(machines, bucket, monkeypatch):
    monkeypatch.setattr("spotkeep.remote.remote_checkpoints._MOST_OBJECTS", 2)
    for number in range(3):
        bucket.Object(f"run/step-{number}/manifest.json").put(Body=b"?")
    with pytest.raises(RemoteError, match="its own prefix"):
        machines("there")[1].steps()


def test_a_bucket_that_does_not_exist_is_an_error_not_an_empty_run(network, tmp_path):
    directory = CheckpointDirectory(tmp_path)
    with pytest.raises(RemoteError, match="NoSuchBucket"):
        RemoteCheckpoints(S3Place(bucket="no-bucket", prefix=""), directory).steps()


def test_old_ones_go_by_the_same_rules_their_manifest_first(machines, network):
    here, remote = machines("here")
    losses = [9, 1, 5, 5, 5, 5]
    for step, loss in enumerate(losses, start=1):
        save(here, step, metrics={"loss": loss})
        send(remote, step)
    network.requests.clear()
    # A machine that did not write them knows their metrics only from S3.
    _, other = machines("there")
    assert other.prune(Retention(last=2, every=3, best=Best("loss"))) == [4, 1]
    assert other.steps() == [6, 5, 3, 2]
    deleted = [request.split("?")[0].rsplit("/", 2)[1:] for request in network.requests if request.startswith("DELETE")]
    assert deleted == [[f"step-{step}", name] for step in (4, 1) for name in ("manifest.json", "data-00000.bin")]


def test_what_another_number_of_ranks_had_for_itself_is_not_removed(machines, bucket):
    here, remote = machines("here")
    own = {"dict": [["random", 1]]}
    by_two = Manifest(1, None, 1.0, "spotkeep", ((), (), ()), {"dict": []}, ranks=(RankShare(own), RankShare(own)))
    bucket.Object("run/step-1/manifest.json").put(Body=manifest_bytes(by_two))
    for step in (2, 3, 4):
        save(here, step)
        send(remote, step)
    assert remote.prune(Retention(last=2)) == [2]
    assert remote.steps() == [4, 3, 1]


def test_two_stay_whatever_was_asked_and_nothing_goes_before_there_are_two(machines, bucket):
    here, remote = machines("here")
    bucket.Object("run/step-1/data-00000.bin").put(Body=b"left of an upload")
    for step in (2, 3, 4):
        save(here, step)
    send(remote, 2)
    assert remote.prune(Retention(last=1)) == []
    send(remote, 3)
    assert remote.prune(Retention(last=1)) == [1]
    send(remote, 4)
    assert remote.prune(Retention(last=1)) == [2]
    assert remote.steps() == [4, 3]


def test_what_was_begun_and_never_finished_does_not_bill_on(machines, bucket):
    bucket.Object("run/step-1/data-00000.bin").initiate_multipart_upload()
    bucket.Object("elsewhere/step-1/data-00000.bin").initiate_multipart_upload()
    machines("here")[1].prune(Retention())
    assert [upload.object_key for upload in bucket.multipart_uploads.all()] == ["elsewhere/step-1/data-00000.bin"]


def test_a_note_of_the_run_comes_back(machines, bucket):
    _, remote = machines("here")
    assert remote.fetch_note("interruptions.json", max_bytes=100) is None
    remote.send_note("interruptions.json", b"{}")
    assert remote.fetch_note("interruptions.json", max_bytes=100) == b"{}"
    assert remote.fetch_note("interruptions.json", max_bytes=1) is None


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("s3://bucket", S3Place("bucket", "")),
        ("s3://bucket/", S3Place("bucket", "")),
        ("s3://my.bucket-1/a/b c/", S3Place("my.bucket-1", "a/b c/")),
    ],
)
def test_a_place_is_a_bucket_and_a_prefix(uri, place):
    assert S3Place.parse(uri) == place


@pytest.mark.parametrize(
    "uri", ["", "bucket/prefix", "s3://", "s3://B/x", "gs://bucket/x", "s3://bucket/a//b", "s3://bucket/../b"]
)
def test_a_place_that_is_none_is_refused(uri):
    with pytest.raises(UsageError, match="s3://bucket/prefix"):
        S3Place.parse(uri)


def test_without_boto3_it_is_said_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(spotkeep.MissingLibraryError, match="pip install boto3"):
        spotkeep.Checkpointer({}, tmp_path, remote="s3://bucket/prefix")


class TestWritersOfARun:
    """I1 in S3: a writer that was replaced overwrites nothing there, and no reader takes what it uploads."""

    def begin(self, machines, name, attempt, *, step=None):
        directory, remote = machines(name)
        remote.learn_writers()
        directory.begin((attempt, 0), step=step, claim=remote.claim)
        return directory, remote

    def test_the_note_and_the_token_are_there_too(self, machines, bucket):
        here, remote = self.begin(machines, "here", 1)
        assert names(bucket) == ["run/writers-1.0.1.json"]
        state = save(here, 3)
        send(remote, 3)
        assert "run/step-3-1.0.1/manifest.json" in names(bucket)
        there, remote = machines("there")
        remote.fetch(3, cancelled=NEVER)
        assert is_that_of(there, 3, state)
        assert str(there.writer_notes.writers().newest) == "1.0.1"

    def test_the_note_of_a_directory_goes_with_its_first_manifest(self, machines, bucket):
        here, remote = machines("here")
        here.begin((1, 0), step=None)  # another process uploads for this one, as the agent does
        save(here, 3)
        send(remote, 3)
        assert "run/writers-1.0.1.json" in names(bucket)

    def test_a_replaced_writer_uploads_no_manifest_and_saves_nothing_more(self, machines, bucket):
        first, first_remote = self.begin(machines, "first", 1)
        save(first, 3)
        send(first_remote, 3)
        save(first, 6)
        _, second_remote = self.begin(machines, "second", 2, step=3)
        with pytest.raises(LockLostError, match=r"s3://.*/run/ belongs to a later writer of this run, 2\.0\.1"):
            send(first_remote, 6)
        assert "run/step-6-1.0.1/manifest.json" not in names(bucket)
        with pytest.raises(LockLostError):
            save(first, 9)
        assert second_remote.steps() == [3]

    def test_nothing_that_a_replaced_writer_uploads_is_read_or_kept(self, machines, bucket, monkeypatch):
        first, first_remote = self.begin(machines, "first", 1)
        for step in (3, 6):
            save(first, step)
        send(first_remote, 3)
        second, second_remote = self.begin(machines, "second", 2, step=3)
        monkeypatch.setattr(first_remote, "_require_lock", lambda: None)  # the answer was on its way
        send(first_remote, 6)
        assert second_remote.steps() == [3]
        for step in (4, 5, 7):
            save(second, step)
            send(second_remote, step)
        assert second_remote.steps() == [7, 5, 4, 3]
        second_remote.prune(Retention(last=2))
        assert {name.split("/")[1] for name in names(bucket)} == {
            "step-5-2.0.1",
            "step-7-2.0.1",
            "writers-1.0.1.json",
            "writers-2.0.1.json",
        }

    def test_of_two_writers_that_begin_at_once_each_has_a_token_of_its_own(self, machines, monkeypatch):
        first, first_remote = machines("first")
        second, second_remote = machines("second")
        first.begin((1, 0), step=None, claim=first_remote.claim)
        second.begin((1, 0), step=5, claim=second_remote.claim)  # it had not seen the other's note
        assert (str(first.writer_notes.token), str(second.writer_notes.token)) == ("1.0.1", "1.0.2")
        save(first, 3)
        with pytest.raises(LockLostError):
            send(first_remote, 3)

    def test_an_answer_that_was_lost_is_no_other_writer(self, machines):
        directory, remote = machines("here")
        begun = directory.writer_notes.writers().begin((1, 0), step=None)
        assert remote.claim(*begun)
        assert remote.claim(*begun)

    def test_a_note_that_cannot_be_read_is_passed_over(self, machines, bucket, caplog):
        here, remote = self.begin(machines, "here", 1)
        save(here, 3)
        send(remote, 3)
        bucket.put_object(Key="run/writers-1.0.9.json", Body=b"half a note")
        _, remote = machines("there")
        assert remote.steps() == [3]
        assert "passing over the note writers-1.0.9.json" in caplog.text
