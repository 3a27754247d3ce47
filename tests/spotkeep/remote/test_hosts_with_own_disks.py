"""Trainings of several hosts, each with a disk of its own, over real gloo. S3 brings their files together."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from contextlib import suppress

import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.remote.remote_checkpoints import RemoteCheckpoints
from spotkeep.remote.s3_objects import S3Place

pytest.importorskip("torch")
from tests.spotkeep.ranks.trainings import Trainings

pytestmark = [pytest.mark.torch, pytest.mark.long]

AWS = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION")
HOSTS = 3


@pytest.fixture
def undisturbed(rank_server, tmp_path):
    run = Trainings(rank_server, tmp_path / "undisturbed").run
    (tmp_path / "undisturbed").mkdir()
    return run(tmp_path / "undisturbed" / "all", world_size=HOSTS)


@pytest.fixture
def train(rank_server, tmp_path, bucket, network):
    environment = {name: os.environ[name] for name in AWS if name in os.environ}
    environment["SPOTKEEP_CHECKPOINT_URI"] = f"s3://{bucket.name}/run"
    trainings = Trainings(rank_server, tmp_path)  # Each training has an output of its own.

    def run(directories=None, **job):
        directories = directories or disks(tmp_path)
        return trainings.run(directories, environment=environment, world_size=HOSTS, **job)

    return run


def disks(tmp_path):
    return [tmp_path / f"host-{host}" for host in range(HOSTS)]


def manifests(bucket):
    return {
        int(found.key.split("/")[1].removeprefix("step-"))
        for found in bucket.objects.all()
        if found.key.endswith("/manifest.json")
    }


def is_whole(path, bucket, step):
    directory = CheckpointDirectory(path)
    RemoteCheckpoints(S3Place(bucket.name, "run/"), directory).fetch(step, cancelled=threading.Event())
    directory.verify(step)
    return True


def test_each_host_uploads_its_own_and_fetches_what_it_needs(train, undisturbed, tmp_path, bucket):
    run = train(notice=[1, 6])
    assert run.codes == [75] * HOSTS, run.output
    # The ranks agree on a step after the notice.
    left = max(manifests(bucket))
    assert 7 <= left < 14
    for disk in disks(tmp_path):
        shutil.rmtree(disk)
    run = train()
    assert run.codes == [0] * HOSTS, run.output
    assert run.began == [left] * HOSTS
    assert run.state == undisturbed.state
    assert max(manifests(bucket)) == 14
    there = [{path.name for path in (disk / f"step-{left}").iterdir()} for disk in disks(tmp_path)]
    own = [names - set.intersection(*there) for names in there]
    # All ranks read the entries that rank 0 alone writes.
    assert all(own[1:]), "each host has files that the others do not need"
    assert not own[1] & own[2]


def test_one_lost_host_of_several_is_no_loss(train, undisturbed, tmp_path, bucket):
    assert train(notice=[0, 6]).codes == [75] * HOSTS
    left = max(manifests(bucket))
    shutil.rmtree(disks(tmp_path)[random.randrange(HOSTS)])  # noqa: S311 - not secret
    run = train()
    assert run.codes == [0] * HOSTS, run.output
    assert run.began == [left] * HOSTS
    assert run.state == undisturbed.state


def test_what_was_only_on_the_disks_is_brought_together(train, undisturbed, tmp_path, bucket, network):
    """The place in S3 refuses every part of a file, and the processes end: the hosts have their files still."""
    network.fault = lambda request: 403 if request.startswith(("PUT", "POST")) and "data-" in request else None
    run = train(kill_in_step=[1, 10], with_checkpoint=8)
    assert manifests(bucket) == set()
    network.fault = lambda request: None
    run = train()
    assert run.codes == [0] * HOSTS, run.output
    assert run.began == [8] * HOSTS
    assert run.state == undisturbed.state
    assert not [found.key for found in bucket.objects.all() if found.key.endswith(".draft")]


def test_what_a_lost_host_alone_had_falls_back_to_the_checkpoint_in_s3(train, undisturbed, tmp_path, bucket, network):
    assert train(notice=[0, 4]).codes == [75] * HOSTS
    left = max(manifests(bucket))
    network.fault = lambda request: 403 if request.startswith(("PUT", "POST")) and "data-" in request else None
    train(kill_in_step=[1, 13], with_checkpoint=left + 4)
    network.fault = lambda request: None
    assert max(CheckpointDirectory(disks(tmp_path)[0]).steps()) > left
    shutil.rmtree(disks(tmp_path)[2])
    run = train()
    assert run.codes == [0] * HOSTS, run.output
    assert run.began == [left] * HOSTS
    assert run.state == undisturbed.state


def test_a_host_that_is_killed_at_any_moment_leaves_the_older_checkpoint_or_the_whole_new_one(
    train, undisturbed, tmp_path, bucket
):
    chance = random.Random(seed := random.randrange(2**32))  # noqa: S311 - not secret
    print(f"drawn with random.Random({seed})")
    for number in range(3):
        victim, after = chance.randrange(HOSTS), chance.uniform(0.0, 0.6)

        def kill(pids, output, victim=victim, after=after):
            while not output.exists() or '"resume"' not in output.read_text():
                time.sleep(0.01)
            time.sleep(after)
            with suppress(ProcessLookupError):  # It may have come to its end.
                os.kill(pids[victim], signal.SIGKILL)

        before = manifests(bucket)
        run = train(kill=kill, step_seconds=0.03)
        newest = max(manifests(bucket), default=-1)
        assert newest >= max(before, default=-1)
        assert newest < 0 or is_whole(tmp_path / f"read-{number}", bucket, newest)
        if run.codes == [0] * HOSTS:
            break
        shutil.rmtree(disks(tmp_path)[victim])
    run = train()
    assert run.codes == [0] * HOSTS, run.output
    assert run.state == undisturbed.state


def test_nodes_go_on_from_the_one_checkpoint_that_their_agents_have_brought(rank_server, undisturbed, tmp_path):
    """Nothing is uploaded by the ranks. Another host is the first one then."""

    def train(order, **job):
        given = {"SPOTKEEP_NODES": str(HOSTS), "SPOTKEEP_RUN": "run", "SPOTKEEP_ATTEMPT": "1"}
        given["SPOTKEEP_LEASE"] = str(job.pop("lease"))
        directories = [disks(tmp_path)[host] for host in order]
        return Trainings(rank_server, tmp_path).run(directories, environment=given, world_size=HOSTS, **job)

    run = train([0, 1, 2], lease=1, notice=[1, 6])
    assert run.codes == [75] * HOSTS, run.output
    (newest,) = CheckpointDirectory(disks(tmp_path)[0]).steps()[:1]
    name = CheckpointDirectory(disks(tmp_path)[0]).name(newest)
    files = {path.name: path.read_bytes() for disk in disks(tmp_path) for path in (disk / name).iterdir()}
    for disk in disks(tmp_path):
        for other in disk.glob("step-*"):
            shutil.rmtree(other)
        (disk / name).mkdir()
        for file, raw in files.items():
            (disk / name / file).write_bytes(raw)
    run = train([2, 0, 1], lease=2)
    assert run.codes == [0] * HOSTS, run.output
    assert run.began == [newest] * HOSTS
    assert run.state == undisturbed.state
