"""Every rank uploads its own files, with the real SDK against the local AWS; the manifest comes when all are there."""

from __future__ import annotations

import functools
import math
import threading

import numpy as np
import pytest

from spotkeep import RemoteError
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.manifest import CHUNK_BYTES, DataFile, Progress
from spotkeep.disk.retention import Retention
from spotkeep.disk.staged_state import StagedState
from spotkeep.ranks.rank_shares import encode_share
from spotkeep.ranks.shared_directory import SharedDirectory
from spotkeep.remote import remote_checkpoints as module
from spotkeep.remote.background_upload import BackgroundUpload
from spotkeep.remote.remote_checkpoints import RemoteCheckpoints
from spotkeep.remote.s3_objects import S3Objects, S3Place
from spotkeep.remote.transfer import Pace
from spotkeep.remote.upload_share import UploadNote, UploadShare, evenly_divided, superseded
from spotkeep.state.encoding import encode_state

RANKS = 3
OWN_BYTES = 18 * CHUNK_BYTES  # three parts


class Recorded(S3Objects):
    """Notes the keys that one rank has written to."""

    def __init__(self, bucket, client):
        super().__init__(bucket, client=client)
        self.written = []

    def write(self, key, raw, **options):
        super().write(key, raw, **options)
        self.written.append(key.rpartition("/")[2])

    def write_part(self, key, upload, **options):
        part = super().write_part(key, upload, **options)
        self.written.append(f"{key.rpartition('/')[2]} {part.number}")
        return part


class Rank:
    """One rank with its uploads, as a session makes them."""

    def __init__(self, ranks, path, bucket, client):
        self.ranks = ranks
        self.directory = SharedDirectory(path, ranks=ranks, ranks_upload=True)
        self.objects = Recorded(bucket, client)
        self.remote = RemoteCheckpoints(S3Place(bucket, "run/"), self.directory, objects=self.objects)
        here = self.directory.ranks_here
        self.remote.share = UploadShare(
            rank=ranks.rank,
            world_size=ranks.world_size,
            place=(here.index(ranks.rank), len(here)),
            written=self.directory.written,
            notes=lambda: self.directory.notes,
        )
        self.outcomes = []
        self.upload = BackgroundUpload(
            self.remote, retention=Retention(last=2), pace=Pace(None), on_outcome=self.outcomes.append
        )
        self.directory.note = lambda: self.upload.note().as_message()
        self.remote.steps()

    def save(self, step, *, own_bytes=OWN_BYTES):
        common = encode_state({"w": np.random.default_rng(step).integers(0, 256, 3 * CHUNK_BYTES, dtype="u1")})
        own = encode_state(
            {"own": np.random.default_rng([step, self.ranks.rank]).integers(0, 256, own_bytes, dtype="u1")}
        )
        sizes = [own_bytes] * self.ranks.world_size
        encoded = encode_share(common, own, rank=self.ranks.rank, own_bytes=sizes)
        staged = StagedState()
        images = staged.arrange(encoded.parts)
        staged.copy(images)
        self.directory.write_images(images, encoded.document, step=step, progress=Progress())

    def names(self, step):
        return [file.name for file in self.directory.written(step)]

    def arrived(self):
        return [outcome.step for outcome in self.outcomes if outcome.problem is None]


@pytest.fixture(scope="module")
def client():
    return functools.cache(lambda: S3Objects("any")._client)


@pytest.fixture
def train(world, tmp_path, bucket, network, client, monkeypatch):
    """Runs a function on each rank, which gets its `Rank`. With `hosts` each has a disk of its own."""
    monkeypatch.setattr("spotkeep.remote.remote_checkpoints._FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("spotkeep.remote.background_upload._FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(module, "_LONGEST_LOOK_SECONDS", 0.1)
    sdk = client()

    def run(act, *, hosts=False, size=RANKS):
        made = [None] * size

        def one(ranks):
            rank = Rank(ranks, tmp_path / (str(ranks.rank) if hosts else "all"), bucket.name, sdk)
            made[ranks.rank] = rank
            try:
                return act(rank)
            finally:
                rank.upload.stop()

        for answer in world(size).run(one):
            if isinstance(answer, BaseException):
                raise answer
        return made

    return run


def forever():
    return math.inf


def save_and_send(rank, step=1):
    rank.save(step)
    rank.upload.offer(step)
    assert rank.upload.finish(forever)


def keys(bucket):
    return sorted(found.key.removeprefix("run/") for found in bucket.objects.all())


def is_whole_in_s3(tmp_path, bucket, client, step, name="another"):
    directory = CheckpointDirectory(tmp_path / name)
    remote = RemoteCheckpoints(S3Place(bucket.name, "run/"), directory, objects=S3Objects(bucket.name, client=client()))
    assert remote.steps()[0] == step
    remote.fetch(step, cancelled=threading.Event())
    state = directory.read(step).state
    for rank in range(RANKS):
        expected = np.random.default_rng([step, rank]).integers(0, 256, OWN_BYTES, dtype="u1")
        assert state[f"rank {rank}"]["own"].tobytes() == expected.tobytes()
    return True


@pytest.mark.parametrize("hosts", [False, True])
def test_each_rank_sends_the_files_that_it_wrote_in_parts(train, tmp_path, bucket, client, hosts):
    ranks = train(save_and_send, hosts=hosts)
    assert is_whole_in_s3(tmp_path, bucket, client, 1)
    for rank in ranks:
        sent = {name.partition(" ")[0] for name in rank.objects.written}
        assert sent == {*rank.names(1), *(["manifest.json"] if rank.ranks.rank == 0 else [])}
        assert rank.arrived() == [1]
        assert [name for name in rank.objects.written if name.endswith(" 3")], "in parts"
    assert ranks[0].objects.written[-1] == "manifest.json"


def test_the_manifest_waits_for_the_slowest_rank(train, network, bucket):
    held = threading.Event()
    seen = []

    def act(rank):
        rank.save(1)
        slow = "data-00005.bin"  # of the last rank
        if rank.ranks.rank == 0:
            network.fault = lambda request: held.wait(300) and None if slow in request and "PUT" in request else None
        rank.ranks.exchange(None)
        rank.upload.offer(1)
        if rank.ranks.rank == 0:
            others = {f"step-1/data-0000{number}.bin" for number in range(5)}
            while not others <= set(keys(bucket)):
                threading.Event().wait(0.05)
            assert not rank.upload.finish(iter([0.5, 0.0]).__next__)
            seen.extend(keys(bucket))
            held.set()
        assert rank.upload.finish(forever)

    train(act)
    assert "step-1/manifest.json" not in seen
    assert "step-1/manifest.json" in keys(bucket)


def test_a_rank_that_fails_gives_way_to_the_next_checkpoint_on_all_ranks(train, network, bucket, tmp_path, client):
    def act(rank):
        if rank.ranks.rank == 0:
            refused = "step-1/data-00004.bin"
            network.fault = lambda request: 403 if refused in request and request.startswith(("PUT", "POST")) else None
        rank.save(1)
        rank.upload.offer(1)
        if rank.ranks.rank == 1:
            while not rank.upload.note().failed:
                threading.Event().wait(0.01)
        rank.ranks.exchange(None)
        save_and_send(rank, 2)

    ranks = train(act)
    assert is_whole_in_s3(tmp_path, bucket, client, 2)
    assert [rank.arrived()[-1] for rank in ranks] == [2, 2, 2]
    assert 1 not in ranks[0].arrived()
    assert "step-1/manifest.json" not in keys(bucket)


def test_checkpoints_that_no_rank_has_begun_are_left_out_by_all(train, network, bucket):
    """Rank 0 is slow, the others are fast: they do not upload what rank 0 will never upload."""
    held = threading.Event()

    def act(rank):
        if rank.ranks.rank == 0:
            network.fault = lambda request: (
                held.wait(300) and None if "step-1/data-00000.bin" in request and "PUT" in request else None
            )
        rank.ranks.exchange(None)
        for step in (1, 2, 3, 4):
            rank.save(step, own_bytes=1000)
            rank.upload.offer(step)
        rank.ranks.exchange(None)
        held.set()
        assert rank.upload.finish(forever)

    ranks = train(act)
    assert ranks[0].arrived() == [1, 4]
    for rank in ranks[1:]:
        assert {1, 4} <= set(rank.arrived())
    assert [key for key in keys(bucket) if key.endswith("manifest.json")] == [
        "step-1/manifest.json",
        "step-4/manifest.json",
    ]


def test_what_was_left_out_and_is_to_stay_follows_on_all_ranks(train, network, bucket):
    held = threading.Event()

    def act(rank):
        rank.upload.keep(Retention(last=2, every=2))
        if rank.ranks.rank == 0:
            network.fault = lambda request: (
                held.wait(300) and None if "step-1/data-00000.bin" in request and "PUT" in request else None
            )
        rank.ranks.exchange(None)
        for step in (1, 2, 3, 5):
            rank.save(step, own_bytes=1000)
            rank.upload.offer(step)
        rank.ranks.exchange(None)
        held.set()
        while not {1, 2, 5} <= set(rank.arrived()):
            assert rank.upload.finish(forever)

    train(act)
    assert [key for key in keys(bucket) if key.endswith("manifest.json")] == [
        "step-2/manifest.json",
        "step-5/manifest.json",
    ], "of the two newest and every second one, the first need not stay"


def lost_in_a_part():
    """The last rank sends one part of a file, and is never heard of again."""

    def act(rank):
        rank.save(1)
        if rank.ranks.rank == RANKS - 1:
            upload = rank.remote.open(1)

            write_part = rank.objects.write_part

            def one_part(key, upload_id, *, number, **options):
                if number > 1:
                    raise module.TransferCancelledError
                return write_part(key, upload_id, number=number, **options)

            rank.objects.write_part = one_part
            with pytest.raises(module.TransferCancelledError):
                rank.remote.send(upload, pace=Pace(None))
            upload.close()
            rank.ranks.exchange(None)
            return
        rank.ranks.exchange(None)
        rank.remote.share.rank_lost.set()
        rank.upload.offer(1)
        rank.complete = rank.upload.finish(lambda: 20.0 if rank.ranks.rank else forever())

    return act


def test_rank_0_takes_over_the_files_of_a_lost_rank_from_a_common_disk(train, network, tmp_path, bucket, client):
    ranks = train(lost_in_a_part())
    assert ranks[0].complete
    assert is_whole_in_s3(tmp_path, bucket, client, 1)
    shared, lost = ranks[-1].names(1)
    assert sorted(ranks[-1].objects.written) == [shared, f"{lost} 1"]
    again = [name for name in ranks[0].objects.written if name.startswith(lost)]
    assert sorted(again) == [f"{lost} 2", f"{lost} 3"], "parts that S3 has are not sent again"


def test_a_lost_rank_with_a_disk_of_its_own_leaves_the_older_checkpoint(train, network, bucket, caplog):
    ranks = train(lost_in_a_part(), hosts=True)
    assert not ranks[0].complete
    assert "step-1/manifest.json" not in keys(bucket)
    assert "nothing more comes from them" in str(ranks[0].outcomes[-1].problem)


def test_files_that_do_not_come_are_taken_over_or_given_up(train, monkeypatch, bucket, tmp_path, client):
    monkeypatch.setattr(module, "_TAKE_OVER_SECONDS", 0.3)
    monkeypatch.setattr(module, "_PARTS_AFTER_SECONDS", 0.1)

    def act(rank):
        rank.save(1)
        if rank.ranks.rank != 2:
            rank.upload.offer(1)
            assert rank.upload.finish(forever)

    train(act)
    assert is_whole_in_s3(tmp_path, bucket, client, 1)


def test_a_hosts_files_that_do_not_come_are_named(train, monkeypatch, bucket):
    monkeypatch.setattr(module, "_GIVE_UP_SECONDS", 0.3)

    def act(rank):
        rank.save(1)
        if rank.ranks.rank == 1:
            rank.upload.offer(1)
            assert rank.upload.finish(forever)
        rank.ranks.exchange(None)
        if rank.ranks.rank == 0:
            rank.upload.offer(1)
            assert not rank.upload.finish(forever)

    ranks = train(act, hosts=True)
    assert "data-00002.bin, data-00005.bin of other ranks are missing" in str(ranks[0].outcomes[-1].problem)
    assert "step-1/manifest.json" not in keys(bucket)


def test_a_second_writer_replaces_no_manifest(train, bucket, network):
    """Another process of the run, without its lock, writes the same step while this one uploads it."""
    strange = b"the manifest of another writer"

    def act(rank):
        rank.save(1)
        if rank.ranks.rank == 0:
            put = rank.objects.write

            def write(key, raw, **options):
                if key.endswith("manifest.json"):
                    bucket.put_object(Key=key, Body=strange)
                put(key, raw, **options)

            rank.objects.write = write
        rank.upload.offer(1)
        assert rank.upload.finish(forever) is (rank.ranks.rank > 0)

    ranks = train(act)
    assert bucket.Object("run/step-1/manifest.json").get()["Body"].read() == strange
    assert isinstance(ranks[0].outcomes[0].problem, RemoteError)
    assert "another process writes to the same place" in str(ranks[0].outcomes[-1].problem)


def test_a_checkpoint_from_before_is_replaced_and_vouches_for_no_new_file(train, bucket, network, tmp_path, client):
    bucket.put_object(Key="run/step-1/manifest.json", Body=b"from before")
    bucket.put_object(Key="run/step-1/data-00003.bin", Body=b"from before")

    def order(request):
        changes.append(request) if request.startswith(("PUT", "POST", "DELETE")) else None

    changes = []
    network.fault = order
    train(save_and_send)
    assert is_whole_in_s3(tmp_path, bucket, client, 1)
    removed = next(index for index, request in enumerate(changes) if request.startswith("DELETE"))
    over = next(index for index, request in enumerate(changes) if "data-00003.bin" in request)
    assert removed < over, "the old manifest goes before a file that it vouches for"


def test_throttles_and_cut_connections_of_any_rank_are_no_end(train, network, tmp_path, bucket, client):
    lock, count = threading.Lock(), [0]

    def sometimes(request):
        with lock:
            count[0] += request.startswith(("PUT", "POST", "HEAD"))
            return (
                (503, "cut")[count[0] // 3 % 2]
                if request.startswith(("PUT", "POST", "HEAD")) and count[0] % 3 == 0
                else None
            )

    network.fault = sometimes
    train(save_and_send)
    network.fault = lambda request: None
    assert is_whole_in_s3(tmp_path, bucket, client, 1)


def test_bytes_of_a_rank_that_went_wrong_on_the_way_make_no_checkpoint(train, bucket):
    refused = threading.Event()

    def act(rank):
        rank.save(1)
        if rank.ranks.rank == 1:
            rank.objects._client = Spoiled(rank.objects._client, rank.objects._client.upload_part)
        rank.upload.offer(1)
        if rank.ranks.rank == 1:
            while not rank.outcomes:
                threading.Event().wait(0.01)
            refused.set()
        done = rank.upload.finish(lambda: 0.0 if refused.is_set() else math.inf)
        assert not done or rank.ranks.rank == 2

    ranks = train(act, hosts=True)
    assert "checksum" in str(ranks[1].outcomes[0].problem).lower()
    assert "step-1/manifest.json" not in keys(bucket)


class Spoiled:
    """A client whose parts lose their last byte's value on the way."""

    def __init__(self, client, upload_part):
        self._client, self._upload_part = client, upload_part

    def __getattr__(self, name):
        return getattr(self._client, name)

    def upload_part(self, *, Body, **options):  # noqa: N803
        return self._upload_part(Body=bytes(Body[:-1]) + bytes([Body[-1] ^ 1]), **options)


def test_pruning_leaves_what_another_rank_is_sending(train, bucket, tmp_path, client):
    """A rank that is ahead has begun the next checkpoint when rank 0 removes what was never finished."""

    def act(rank):
        for step in (1, 2, 3):
            save_and_send(rank, step)
            rank.ranks.exchange(None)
        if rank.ranks.rank == 2:
            rank.objects.begin_upload("run/step-4/data-00003.bin", labels={})
            rank.objects.begin_upload("run/step-2/data-00003.bin", labels={})
        rank.ranks.exchange(None)
        if rank.ranks.rank == 0:
            assert rank.remote.prune(Retention(last=2)) == []

    ranks = train(act)
    assert [key for key, _ in ranks[0].objects.unfinished_uploads("run/")] == ["run/step-4/data-00003.bin"]
    assert is_whole_in_s3(tmp_path, bucket, client, 3)
    assert {key.partition("/")[0] for key in keys(bucket)} == {"step-2", "step-3"}


def test_the_ranks_give_up_the_same_uploads():
    notes = [UploadNote((7,), {}), UploadNote((6, 7), {5: "no way"}), UploadNote((), {})]
    again = [UploadNote.from_message(note.as_message()) for note in notes]
    assert superseded(again, by=9) == {7: "", 5: "rank 1: no way"}
    assert superseded([UploadNote((7, 9), {7: "no way"})], by=9) == {7: "no way"}
    assert superseded([], by=9) == {}


def test_files_are_divided_evenly_and_alike():
    files = [DataFile(f"data-{number:05d}.bin", size, ()) for number, size in enumerate([5, 9, 1, 1, 7, 3])]
    parts = evenly_divided(files, 3)
    assert sorted(file.name for part in parts for file in part) == [file.name for file in files]
    assert [sum(file.size for file in part) for part in parts] == [9, 9, 8]
    assert evenly_divided(files[::-1], 3) == parts
