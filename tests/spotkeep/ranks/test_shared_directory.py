"""Ranks that write a checkpoint together: whole or invisible, whatever goes wrong on whichever of them."""

from __future__ import annotations

import threading
import time
from functools import partial

import numpy as np
import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.inspection import InspectedCheckpoint
from spotkeep.disk.manifest import Progress
from spotkeep.disk.retention import Retention
from spotkeep.disk.staged_state import StagedState
from spotkeep.disk.upload_markers import UPLOADED_SUFFIX, UploadWatch
from spotkeep.errors import LockLostError, RemoteError, SaveError, UsageError
from spotkeep.ranks import shared_directory
from spotkeep.ranks.rank_shares import encode_share, view_for
from spotkeep.ranks.shared_directory import SharedDirectory
from spotkeep.state.divided import Box, DividedArray, Part
from spotkeep.state.encoding import encode_state

SAGEMAKER = UploadWatch(platform_copies=True)


def write(directory, ranks, step, *, metrics=None):
    part = Part(Box((3 * ranks.rank,), (3,)), np.full(3, 10 * step + ranks.rank))
    divided = DividedArray(kind="ndarray", dtype="<i8", shape=(3 * ranks.world_size,), parts=(part,))
    state = {"weights": np.full(5000, step), "count": step, "divided": divided}
    own = {"rng": np.full(3, 10 * step + ranks.rank)}
    sizes = [48] * ranks.world_size
    encoded = encode_share(encode_state(state), encode_state(own), rank=ranks.rank, own_bytes=sizes)
    staged = StagedState()
    images = staged.arrange(encoded.parts)
    staged.copy(images)
    return directory.write_images(images, encoded.document, step=step, progress=Progress(metrics=metrics or {}))


def read(path, step, rank, world_size):
    found = CheckpointDirectory(path).open(
        step, view=lambda one: view_for(one, rank=rank, world_size=world_size, per_rank=["rng"])
    )
    found.fill()
    return found.state


def test_one_manifest_vouches_for_what_all_have_written(world, tmp_path):
    sizes = world(3).run(lambda ranks: write(SharedDirectory(tmp_path, ranks=ranks), ranks, 7, metrics={"loss": 0.5}))
    assert len(set(sizes)) == 1
    assert sizes[0] == sum(path.stat().st_size for path in (tmp_path / "step-7").iterdir())
    for rank in range(3):
        state = read(tmp_path, 7, rank, 3)
        assert state["weights"].tolist() == [7] * 5000
        assert state["rng"].tolist() == [70 + rank] * 3
        assert state["divided"].tolist() == [70] * 3 + [71] * 3 + [72] * 3
    whole = CheckpointDirectory(tmp_path).read(7)
    assert whole.metrics == {"loss": 0.5}
    assert [whole.state[f"rank {rank}"]["rng"][0] for rank in range(3)] == [70, 71, 72]
    with InspectedCheckpoint(tmp_path, 7) as inspected:
        assert [entry.name for entry in inspected.entries()] == [
            *("weights", "count", "divided", "rank 0.rng", "rank 1.rng", "rank 2.rng")
        ]
        assert list(inspected.damage()) == []


def test_a_step_that_was_begun_before_is_written_anew(world, tmp_path):
    orphan = tmp_path / "step-7"
    orphan.mkdir()
    for index in range(9):
        (orphan / f"data-{index:05d}.bin").write_bytes(b"of an earlier attempt")
    world(2).run(lambda ranks: write(SharedDirectory(tmp_path, ranks=ranks), ranks, 7))
    assert sorted(path.name for path in orphan.iterdir()) == [
        *(f"data-{n:05d}.bin" for n in range(3)),
        "manifest.json",
    ]
    CheckpointDirectory(tmp_path).verify(7)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("cause", ["full", "gone"])
def test_wherever_a_rank_fails_there_is_no_checkpoint_or_a_whole_one(
    world, tmp_path, faulty_storage, crash, victim, cause
):
    outcomes = set()
    for point in range(40):
        path = tmp_path / f"{point}"
        storages = [faulty_storage(), faulty_storage()]

        def act(ranks, path=path, storages=storages, point=point):
            directory = SharedDirectory(path, ranks=ranks, storage=storages[ranks.rank])
            write(directory, ranks, 1)
            if ranks.rank == victim:
                storage = storages[victim]
                storage._change = partial(change, ranks.world, storage, len(storage.log) + point)
            return write(directory, ranks, 2)

        def change(world, storage, last, operation, file):
            storage.log.append(operation)
            if len(storage.log) > last and cause == "gone":
                world.barrier.abort()
                raise crash
            if len(storage.log) > last and not operation.startswith("remove"):
                raise OSError(28, "No space left on device")

        found = world(2).run(act)
        there = CheckpointDirectory(path).steps()
        outcomes.add(tuple(there))
        for step in there:
            CheckpointDirectory(path).verify(step)
            state = read(path, step, 0, 3)
            assert state["divided"].tolist() == [10 * step] * 3 + [10 * step + 1] * 3, (
                "another number of ranks reads it"
            )
        assert 1 in there, "what was durable is not lost"
        if cause == "full" and 2 not in there:
            assert all(isinstance(one, SaveError) and "the disk is full" in str(one) for one in found)
        if all(isinstance(one, int) for one in found):
            assert there == [2, 1]
            break
    else:
        pytest.fail("it never went well")
    assert outcomes == {(1,), (2, 1)}


def test_a_rank_that_cannot_begin_lets_the_others_know(world, tmp_path):
    problem = MemoryError("no room for a copy")

    def act(ranks):
        directory = SharedDirectory(tmp_path, ranks=ranks)
        if ranks.rank == 1:
            directory.decline(problem)
            return "declined"
        return write(directory, ranks, 3)

    failed, declined = world(2).run(act)
    assert declined == "declined"
    assert isinstance(failed, SaveError)
    assert "rank 1: MemoryError: no room for a copy" in str(failed)
    assert CheckpointDirectory(tmp_path).steps() == []
    assert [path.name for path in tmp_path.iterdir()] == []


def test_s3_that_refuses_the_note_is_no_full_disk_on_any_rank(world, tmp_path):
    def claim(token, writers):
        raise RemoteError("AccessDenied")

    def act(ranks):
        SharedDirectory(tmp_path, ranks=ranks).begin((1, 0), step=None, claim=claim)

    assert [(type(one), str(one)) for one in world(2).run(act)] == [(RemoteError, "AccessDenied")] * 2


def test_a_folder_that_one_rank_cannot_make_is_named_on_every_rank(world, tmp_path, faulty_storage):
    def refuse(operation, file):
        raise OSError(5, "Input/output error")

    def act(ranks):
        storage = faulty_storage()
        if ranks.rank == 1:
            storage._change = refuse
        return SharedDirectory(tmp_path / "checkpoints" / f"{ranks.rank}", ranks=ranks, storage=storage)

    other, refused = world(2).run(act)
    said = f"the folder {tmp_path / 'checkpoints' / '1'} of the checkpoints cannot be made: Input/output error"
    assert isinstance(refused, SaveError)
    assert str(refused).startswith(said)
    assert str(other).startswith(f"rank 1: {said}")


def test_one_rank_prunes(world, tmp_path):
    def act(ranks):
        directory = SharedDirectory(tmp_path, ranks=ranks)
        removed = []
        for step in range(1, 6):
            write(directory, ranks, step)
            removed += directory.prune(Retention(last=2))
        return removed

    assert world(2).run(act) == [[1, 2, 3], []]
    assert CheckpointDirectory(tmp_path).steps() == [5, 4]


class TestHostsWithADiskEach:
    """As on SageMaker, where the platform brings together what the hosts have written."""

    def directory(self, ranks, folder):
        return SharedDirectory(folder / f"host-{ranks.rank // 2}", ranks=ranks, uploads=SAGEMAKER)

    def test_each_host_makes_its_own_place_and_the_first_has_the_manifest(self, world, tmp_path):
        world(4).run(lambda ranks: write(self.directory(ranks, tmp_path), ranks, 1))
        names = [sorted(path.name for path in (tmp_path / f"host-{host}/step-1").iterdir()) for host in (0, 1)]
        assert names == [
            ["data-00000.bin", "data-00001.bin", "data-00002.bin", "manifest.json"],
            ["data-00003.bin", "data-00004.bin"],
        ]

    def mark(self, folder, host, step):
        for path in list((folder / f"host-{host}" / f"step-{step}").iterdir()):
            (path.parent / (path.name + UPLOADED_SUFFIX)).touch()

    def test_nothing_goes_before_newer_ones_have_arrived_from_every_host(self, world, tmp_path):
        def act(ranks):
            directory = self.directory(ranks, tmp_path)
            removed = []
            for step in range(1, 8):
                write(directory, ranks, step)
                ranks.exchange(None)
                if ranks.rank == 0:
                    self.mark(tmp_path, 0, step)
                if ranks.rank == 2 and step >= 4:
                    self.mark(tmp_path, 1, step)
                ranks.exchange(None)
                removed.append(directory.prune(Retention(last=2)))
                ranks.exchange(None)
            return removed

        removed = world(4).run(act)
        assert removed[0][:4] == [[], [], [], []], "the second host's have not arrived"
        assert removed[0][-1] != []
        assert removed[1] == removed[2] == removed[3] == [[]] * 7
        here, there = (sorted(path.name for path in (tmp_path / f"host-{host}").iterdir()) for host in (0, 1))
        assert here == ["step-5", "step-6", "step-7"], "nothing has said yet that the newest has arrived"
        assert set(here) <= set(there)
        assert "step-1" not in there, "it follows at the next save"

    def test_what_one_host_alone_has_copied_is_not_one_of_the_two_that_let_an_old_one_go(self, world, tmp_path):
        """The first host is ahead of the second by a checkpoint, and cannot know how far that one is."""

        def act(ranks):
            directory = self.directory(ranks, tmp_path)
            for step in range(1, 6):
                if ranks.rank == 2 and step > 1:
                    self.mark(tmp_path, 1, step - 1)
                ranks.exchange(None)
                write(directory, ranks, step)
                if ranks.rank == 0:
                    self.mark(tmp_path, 0, step)
                ranks.exchange(None)
                directory.prune(Retention(last=2))
                ranks.exchange(None)
                if ranks.rank == 0:
                    there = {int(path.name.removeprefix("step-")) for path in (tmp_path / "host-0").iterdir()}
                    assert {*range(max(1, step - 2), step + 1)} <= there, f"two are whole in S3 after step {step}"

        assert world(4).run(act) == [None] * 4

    def test_where_no_removal_reaches_s3_nothing_waits_for_copies(self, world, tmp_path):
        """With uploads by the ranks, or by the agents of nodes, S3 keeps its own newest checkpoints."""

        def act(ranks):
            directory = SharedDirectory(tmp_path / f"host-{ranks.rank}", ranks=ranks, ranks_upload=True)
            for step in range(1, 6):
                write(directory, ranks, step)
                directory.prune(Retention(last=2))

        world(2).run(act)
        here, there = (sorted(path.name for path in (tmp_path / f"host-{host}").iterdir()) for host in (0, 1))
        assert here == ["step-4", "step-5"]
        assert there == ["step-3", "step-4", "step-5"], "it follows at the next save"

    def test_elsewhere_they_are_refused(self, world, tmp_path, monkeypatch):
        monkeypatch.setattr(shared_directory, "_PROBE_SECONDS", 0.05)
        found = world(3).run(lambda ranks: SharedDirectory(tmp_path / f"{ranks.rank // 2}", ranks=ranks))
        assert all(isinstance(one, UsageError) and "rank 2 on " in str(one) for one in found)
        assert list((tmp_path / "0").iterdir()) == []


def test_hosts_that_share_a_file_system_are_known_by_what_they_see(world, tmp_path, monkeypatch):
    machines = iter(["a", "b"])
    lock = threading.Lock()

    def machine():
        with lock:
            return next(machines)

    monkeypatch.setattr(shared_directory, "_machine", machine)
    # As on a file system of the network, which several machines can mount.
    monkeypatch.setattr(shared_directory, "_is_on_a_disk_of_its_own", lambda device: False)
    sizes = world(2).run(lambda ranks: write(SharedDirectory(tmp_path, ranks=ranks), ranks, 1))
    assert all(isinstance(size, int) for size in sizes)
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"], "the probe is gone"


def test_a_network_file_system_may_show_it_a_little_later(tmp_path):
    probe = tmp_path / "probe"
    late = threading.Timer(0.2, probe.touch)
    late.start()
    assert shared_directory._appears(probe, shared_directory.LocalStorage())
    late.join()


def test_the_rank_that_commits_counts_what_is_durable_even_when_another_is_gone_since(world, tmp_path):
    def act(ranks):
        directory = SharedDirectory(tmp_path, ranks=ranks)
        write(directory, ranks, 1)
        commit = directory._commit_share

        def die_then(*arguments, **options):
            if ranks.rank == 1:
                # Rank 0 has everything it needs; wait for the manifest, then die.
                while not (tmp_path / "step-2" / "manifest.json").exists():
                    time.sleep(0.001)
                raise world.Killed
            return commit(*arguments, **options)

        directory._commit_share = die_then
        return write(directory, ranks, 2)

    committed, killed = world(2).run(act)
    assert isinstance(killed, world.Killed)
    assert committed > 0
    assert CheckpointDirectory(tmp_path).steps() == [2, 1]


def test_all_ranks_write_with_the_token_that_rank_0_takes(world, tmp_path):
    def act(ranks):
        directory = SharedDirectory(tmp_path, ranks=ranks)
        directory.begin((2, 1), step=None)
        write(directory, ranks, 7)
        return str(directory.writer_notes.token), directory.name(7)

    assert world(3).run(act) == [("2.1.1", "step-7-2.1.1")] * 3
    assert read(tmp_path, 7, 2, 3)["rng"].tolist() == [72] * 3


def test_ranks_that_were_replaced_save_nothing_more(world, tmp_path):
    def act(ranks):
        directory = SharedDirectory(tmp_path, ranks=ranks)
        directory.begin((1, 0), step=None)
        write(directory, ranks, 7)
        ranks.exchange(None)
        if ranks.rank == 1:
            CheckpointDirectory(tmp_path).begin((2, 0), step=7)
        ranks.exchange(None)
        write(directory, ranks, 8)

    assert [type(error) for error in world(2).run(act)] == [LockLostError, LockLostError]
    assert CheckpointDirectory(tmp_path).steps() == [7]


def test_hosts_with_own_disks_leave_the_same_note(world, tmp_path):
    def act(ranks):
        directory = SharedDirectory(tmp_path / f"host-{ranks.rank}", ranks=ranks, uploads=SAGEMAKER)
        directory.begin((1, 0), step=None)
        write(directory, ranks, 7)

    assert world(2).run(act) == [None, None]
    notes = [(tmp_path / f"host-{host}" / "writers-1.0.1.json").read_bytes() for host in range(2)]
    assert notes[0] == notes[1]
    assert list((tmp_path / "host-1" / "step-7-1.0.1").glob("data-*"))


def test_each_start_of_hosts_with_own_disks_names_its_files_anew_also_outside_of_a_run(world, tmp_path):
    """The platform mirrors that one host removes what another one wrote before, and must not take its new file."""

    def act(ranks):
        directory = SharedDirectory(tmp_path / f"host-{ranks.rank}", ranks=ranks, uploads=SAGEMAKER)
        directory.begin(None, step=None)
        write(directory, ranks, 7)
        return directory.name(7)

    assert world(2).run(act) == ["step-7-0.0.1"] * 2
    assert world(2).run(act) == ["step-7-0.0.2"] * 2


@pytest.mark.parametrize("refusing", [0, 1])
def test_a_disk_that_takes_no_note_is_named_on_every_rank(world, tmp_path, monkeypatch, refusing):
    def act(ranks):
        directory = SharedDirectory(tmp_path / f"host-{ranks.rank}", ranks=ranks, uploads=SAGEMAKER)
        if ranks.rank == refusing:
            monkeypatch.setattr(directory._storage, "create", refuse)
        directory.begin((1, 0), step=None)

    def refuse(path, **options):
        raise OSError(28, "No space left on device")

    assert [type(error) for error in world(2).run(act)] == [SaveError, SaveError]
    monkeypatch.undo()
    assert world(2).run(lambda ranks: begin_anew(ranks, tmp_path)) == ["1.0.2" if refusing else "1.0.1"] * 2


def begin_anew(ranks, path):
    directory = SharedDirectory(path / f"host-{ranks.rank}", ranks=ranks, uploads=SAGEMAKER)
    directory.begin((1, 0), step=None)
    return str(directory.writer_notes.token)
