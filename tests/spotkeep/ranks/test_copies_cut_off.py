"""Two hosts of two ranks, each with a disk of its own, and copies that end anywhere: all go on from one step.

The platform copies each host's files to one prefix, in no order, and the prefix to every host at a start. The copies
are the local AWS's own. Those of each host end at a drawn place, the next file half sent, and then the hosts are gone.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from contextlib import suppress

import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.errors import CheckpointError
from spotkeep_local.training.checkpoint_sync import CheckpointSync
from spotkeep_local.training.object_store import S3Location

pytest.importorskip("torch")
from tests.spotkeep.ranks.trainings import STEPS, Trainings

pytestmark = [pytest.mark.torch, pytest.mark.long]

PREFIX = S3Location("bucket", "run")
LIVES = 4
SAGEMAKER = {"TRAINING_JOB_NAME": "two-hosts-1"}
OPTIONS = {"every_steps": 1, "keep_last": 2}


class Prefix:
    """The objects below one prefix, as `ObjectStore` gives them."""

    def __init__(self):
        self.contents = {}

    def list_keys(self, folder):
        return iter([key for key in self.contents if key.startswith(folder.key)])

    def download(self, location, target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.contents[location.key])

    def upload(self, body, location):
        sent = b""
        while chunk := body.read(64):
            sent += chunk
        self.contents[location.key] = sent

    def delete(self, location):
        self.contents.pop(location.key, None)


class Hosts:
    """Two hosts with new disks, which copy to a prefix until each has copied so many files."""

    def __init__(self, prefix, folder, *, most=(None, None)):
        self.disks = [folder / "host-0", folder / "host-1"]
        self.syncs = []
        for disk, limit in zip(self.disks, most, strict=True):
            sync = CheckpointSync(
                store=prefix, remote=PREFIX, local=disk, interval_seconds=0.02, upload_delay_seconds=0.0
            )
            sync.restore()
            sync._on_upload = lambda sync=sync, limit=limit: sync.lose() if sync.uploads == limit else None
            self.syncs.append(sync)
            sync.start()

    def take(self, pids, output):
        """Wait until the copies of both have ended, or the training has, and kill all ranks."""
        while any(not sync._lost.is_set() for sync in self.syncs) and any(map(is_alive, pids)):
            time.sleep(0.005)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for sync in self.syncs:
            sync.lose()
            sync.join()

    def finish(self):
        for sync in self.syncs:
            sync.finish()


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def whole_steps(prefix, folder):
    """Give the steps of which every file is below the prefix, verified to the last byte."""
    shutil.rmtree(folder, ignore_errors=True)
    for key in prefix.contents:
        prefix.download(S3Location("bucket", key), folder / key.removeprefix("run/"))
    directory, found = CheckpointDirectory(folder), set()
    for step in directory.steps():
        with suppress(CheckpointError):
            directory.verify(step)
            found.add(step)
    return found


@pytest.mark.parametrize("kind", ["steps", "shards"])
@pytest.mark.parametrize("run", [{}, {"SPOTKEEP_ATTEMPT": "1"}], ids=["outside of a run", "in a run"])
def test_hosts_whose_copies_end_anywhere_go_on_from_the_newest_step_that_is_whole(rank_server, tmp_path, kind, run):
    chance = random.Random(seed := random.randrange(2**32))  # noqa: S311 - not secret
    print(f"drawn with random.Random({seed})")
    job = {"kind": kind, "world_size": 4, "options": OPTIONS, "environment": {**SAGEMAKER, **run}}
    (tmp_path / "alone").mkdir()
    alone = Trainings(rank_server, tmp_path / "alone").run(
        [tmp_path / "alone" / f"{rank // 2}" for rank in range(4)], **job
    )
    assert alone.codes == [0] * 4, alone.output
    prefix, trainings, newest = Prefix(), Trainings(rank_server, tmp_path), 0
    for life in range(LIVES):
        folder = tmp_path / f"life-{life}"
        most = [chance.randint(0, 25) or None for _ in range(2)]
        hosts = Hosts(prefix, folder, most=most)
        directories = [hosts.disks[rank // 2] for rank in range(4)]
        taken = trainings.run(directories, kill=hosts.take, step_seconds=0.05, **job)
        resumed = [event["step"] for event in taken.events("resume")]
        assert resumed in ([], [newest]), (resumed, newest, taken.output)
        whole = whole_steps(prefix, tmp_path / "seen")
        print(f"life {life}: at most {most} copies, whole {sorted(whole)}")
        assert max(whole, default=0) >= newest, "what was durable is lost"
        newest = max(whole, default=0)
        shutil.rmtree(folder)
    hosts = Hosts(prefix, tmp_path / "last")
    last = trainings.run([hosts.disks[rank // 2] for rank in range(4)], **job)
    hosts.finish()
    assert last.codes == [0] * 4, last.output
    assert last.began == [newest] * 4
    assert last.state == alone.state
    assert STEPS in whole_steps(prefix, tmp_path / "seen")
