"""Jobs of several hosts, with real processes: what each host is, how copies come together, and how all end."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import socket
import tarfile

import pytest

from spotkeep_local.capacity import CapacityScript, Interruption
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.hosts.network import join_hosts, network_refusal
from spotkeep_local.training import job_network, runner
from spotkeep_local.training.job_host import resolve_isolation
from spotkeep_local.training.job_network import JobNetwork

BEGIN = """
import json, os, pathlib, signal, socket, sys, time
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
place = json.loads((base / "input/config/resourceconfig.json").read_text())
rank = place["hosts"].index(place["current_host"])
checkpoints = base / "checkpoints"

def say(**event):
    print("spotkeep-event: " + json.dumps(event), flush=True)
"""
WHO_AM_I = (
    BEGIN
    + """
try:
    own = socket.gethostbyname(socket.gethostname())
except OSError:
    own = "unknown"
facts = {
    "place": place, "hostname": socket.gethostname(), "own": own,
    "addresses": [socket.gethostbyname(name) for name in place["hosts"]],
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "port": os.environ.get("SM_MASTER_PORT"),
}
if rank == 0:
    with socket.create_server(("", 23456)) as server:
        server.settimeout(300)
        met, _ = server.accept()
        facts["met"] = met.getpeername()[0]
else:
    for _ in range(6000):
        try:
            socket.create_connection((place["hosts"][0], 23456)).close()
            break
        except OSError:
            time.sleep(0.05)
import urllib.error, urllib.request
try:
    facts["aws"] = urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"], timeout=300).status
except urllib.error.HTTPError as error:
    facts["aws"] = error.code
(base / "model" / f"facts-{rank}").write_text(json.dumps(facts))
(base / "model" / "all").write_text(str(rank))
(base / "output/data").joinpath(f"of-{rank}").touch()
print(f"host {rank} says so", flush=True)
"""
)
TRAIN = (
    BEGIN
    + """
found = sorted(int(path.name.split("-")[1]) for path in checkpoints.glob("step-*"))
first = found[-1] if found else 0
print("found", rank, sorted(path.name for path in checkpoints.glob("step-*")), flush=True)
if rank == 0:
    say(event="resume", step=first)
left = []
signal.signal(signal.SIGTERM, lambda *_: left.append(True))
meeting = pathlib.Path(sys.argv[1])
(meeting / f"host-{rank}").touch()
while len(list(meeting.glob("host-*"))) < len(place["hosts"]):
    time.sleep(0.01)
for step in range(first + 1, 13):
    while step == 7 and not found and not left:
        time.sleep(0.01)
    time.sleep(0.05)
    (checkpoints / f"step-{step:03d}-of-{rank}").write_text("x" * 1000)
    if rank == 0:
        say(event="progress", step=step, total_steps=12)
    if left:
        print("noticed", rank, flush=True)
        sys.exit(75)
"""
)
"""Its word is a folder outside the job, in which its hosts meet before the first step. The first life waits after half
of the steps to be taken away: the test may be slow.
"""
OWN_NETWORKS = pytest.mark.skipif(
    network_refusal() is not None or resolve_isolation(Isolation.AUTO) is not Isolation.NAMESPACE,
    reason=f"hosts have no networks of their own here: {network_refusal()}",
)


def two(**changes):
    return {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 10} | changes}


def archive(training, name, file="model"):
    content = training.objects(f"out/{name}/output/{file}.tar.gz")[f"out/{name}/output/{file}.tar.gz"]
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {member.name: tar.extractfile(member).read().decode() for member in tar if member.isfile()}


def streams(training, name):
    logs = training.local.session().client("logs")
    found = logs.describe_log_streams(logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{name}/")
    return sorted(stream["logStreamName"] for stream in found["logStreams"])


def facts_of(training, name):
    training.create(name, WHO_AM_I, **two())
    ended = training.wait_ended(name)
    assert ended["TrainingJobStatus"] == "Completed", (ended, training.log(name))
    return [json.loads(archive(training, name)[f"facts-{rank}"]) for rank in range(2)]


@OWN_NETWORKS
def test_each_host_has_a_network_a_name_that_says_nothing_and_the_names_of_all(training):
    found = facts_of(training, "several")
    for number, facts in enumerate(found, start=1):
        assert facts["place"]["current_host"] == f"algo-{number}"
        assert facts["place"]["hosts"] == ["algo-1", "algo-2"]
        assert facts["place"]["instance_groups"][0]["hosts"] == ["algo-1", "algo-2"]
        assert facts["place"]["network_interface_name"] == "eth0"
        assert facts["interfaces"] == ["eth0", "lo"]
        assert facts["hostname"] == "aws"
        assert facts["own"] not in facts["addresses"]
        assert len(set(facts["addresses"])) == 2
        assert facts["port"] is None
        assert facts["aws"] < 500
    assert found[0]["met"] == found[0]["addresses"][1]
    described = training.describe("several")
    assert described["ResourceConfig"]["InstanceCount"] == 2
    # AWS counts the seconds of one instance, and multiplies them on the bill.
    assert described["BillableTimeInSeconds"] <= described["TrainingTimeInSeconds"]


def test_the_archives_hold_the_files_of_all_hosts_and_each_has_a_stream(training):
    facts_of(training, "gathered")
    assert {"facts-0", "facts-1", "all"} == archive(training, "gathered").keys()
    assert archive(training, "gathered")["all"] == "0"
    assert archive(training, "gathered", "output").keys() == {"of-0", "of-1"}
    first, second = streams(training, "gathered")
    assert first.startswith("gathered/algo-1-")
    assert second == first.replace("algo-1", "algo-2")
    assert {"host 0 says so", "host 1 says so"} <= set(training.log("gathered"))
    assert not list((training.folder / "hosts").glob("gathered/*"))


@pytest.mark.parametrize("isolation", [Isolation.AUTO, Isolation.RELOCATED])
def test_where_networks_are_refused_each_host_has_an_address_of_the_machine(make_training, monkeypatch, isolation):
    monkeypatch.setattr(job_network, "network_refusal", lambda: "refused by the test")
    training = make_training(isolation=isolation)
    found = facts_of(training, "shared")
    for facts in found:
        assert facts["addresses"] == ["127.0.0.2", "127.0.0.3"]
        assert facts["place"]["network_interface_name"] == "lo"
        assert facts["port"] == found[0]["port"] != None  # noqa: E711 - all hosts meet at one
    assert training.facts("shared").shared_network is not None
    training.create("other", WHO_AM_I)
    training.wait_ended("other")
    assert training.facts("other").shared_network is None


@OWN_NETWORKS
def test_a_network_goes_with_its_hosts():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    hosts = ("198.18.0.1", "198.18.0.2", "198.18.0.3")
    network, namespaces = join_hosts("198.18.0.0/24", hosts=hosts, endpoint_port=port)
    made = {os.stat(file).st_ino for file in namespaces}  # noqa: PTH116 - of the namespace, not of the link
    assert len(made) == 3
    assert made <= set(open_files())
    network.close()
    assert not made & set(open_files())


def open_files():
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the numbers
        with contextlib.suppress(OSError):
            yield os.fstat(int(name)).st_ino


def test_all_hosts_get_sigterm_and_come_back_to_the_files_of_all(training, tmp_path):
    interruption = Interruption(at_step=4, notice_seconds=60.0, capacity_returns_after_seconds=0.0)
    training.script_capacity("noticed", CapacityScript(interruptions=(interruption,)))
    training.create("noticed-1", TRAIN, tmp_path, **two())
    assert training.wait_ended("noticed-1")["TrainingJobStatus"] == "Completed"
    assert training.path("noticed-1").count("Interrupted") == 1
    first, second = training.facts("noticed-1").lifetimes
    assert (first.interrupted, first.notice, first.signal) == (True, True, "SIGTERM")
    assert [(host.name, host.exit_code) for host in first.hosts] == [("algo-1", 75), ("algo-2", 75)]
    assert first.unsent_files == ()
    log = training.log("noticed-1")
    assert {"noticed 0", "noticed 1"} <= set(log)
    found = {line for line in log if line.startswith("found") and not line.endswith("[]")}
    ours = sorted(name.removeprefix("checkpoints/") for name in training.objects("checkpoints/"))
    names = str([name for name in ours if name in first.stored_files])
    assert found == {f"found 0 {names}", f"found 1 {names}"}
    assert second.restored_files == len(first.stored_files)
    assert second.resumed_step >= 4


def test_copies_are_cut_off_at_any_file_of_any_host(training, tmp_path):
    chance = random.Random(seed := random.randrange(2**32))  # noqa: S311 - not secret
    print(f"drawn with random.Random({seed})")
    places = [chance.randint(1, 12) for _ in range(2)]
    interruptions = [Interruption(at_uploads=at, notice=False, capacity_returns_after_seconds=0.0) for at in places]
    training.script_capacity("cut", CapacityScript(interruptions=tuple(interruptions)))
    training.create("cut-1", TRAIN, tmp_path, **two())
    assert training.wait_ended("cut-1")["TrainingJobStatus"] == "Completed"
    lives = training.facts("cut-1").lifetimes
    taken = [life for life in lives if life.interrupted]
    assert taken
    for life, after in itertools.pairwise(lives):
        assert life.uploads == sum(host.uploads for host in life.hosts)
        assert {name for host in life.hosts for name in host.unsent_files} == set(life.unsent_files)
        assert after.restored_files == len(life.stored_files)
    stored = {name.removeprefix("checkpoints/") for name in training.objects("checkpoints/")}
    assert stored == set(lives[-1].stored_files)


def test_an_interruption_comes_in_the_middle_of_the_copies_or_when_none_are_made_any_more(
    training, tmp_path, monkeypatch
):
    step_is_known = tmp_path / "step-is-known"
    script = (
        BEGIN
        + """
found = sorted(path.name for path in checkpoints.iterdir())
if not found:
    if rank == 0:
        say(event="progress", step=1, total_steps=2)
    if sys.argv[1] == "saves":
        while not pathlib.Path(sys.argv[2]).exists():
            time.sleep(0.01)
        for number in range(20):
            (checkpoints / f"{number}-of-{rank}").touch()
    time.sleep(600)
"""
    )
    for name, copies in (("saves", 7), ("idle", 0)):
        monkeypatch.setattr(runner, "COPIES_SECONDS", 600.0 if copies else 0.2)
        interruption = Interruption(at_step=1, after_uploads=7, notice=False, capacity_returns_after_seconds=0.0)
        training.script_capacity(name, CapacityScript(interruptions=(interruption,)))
        prefix = {"CheckpointConfig": {"S3Uri": f"s3://{training.bucket}/{name}/"}}
        training.put("code/train.py", script)
        training.call("CreateTrainingJob", **training.request(f"{name}-1", name, step_is_known, **two(), **prefix))
        if name == "idle":
            training.wait_until(lambda: len(training.facts("idle-1").lifetimes) == 2)
            training.stop("idle-1")
            training.wait_ended("idle-1")
        else:
            training.wait_for_step("saves-1", 1)
            step_is_known.touch()
            assert training.wait_ended("saves-1")["TrainingJobStatus"] == "Completed"
        first = training.facts(f"{name}-1").lifetimes[0]
        assert (first.interrupted, first.uploads, len(first.stored_files)) == (True, copies, copies)


def test_a_loss_that_waits_for_copies_comes_before_a_quick_job_has_ended(training, monkeypatch):
    monkeypatch.setattr(runner, "COPIES_SECONDS", 600.0)
    script = (
        BEGIN
        + """
checkpoints.mkdir(exist_ok=True)
first = 10 * (checkpoints / "step-10").exists()
for step in range(first + 1, 21):
    if rank == 0:
        say(event="progress", step=step, total_steps=20)
        if step == 10:
            (checkpoints / "step-10").touch()
            while not (checkpoints / "step-10.sagemaker-uploaded").exists():
                time.sleep(0.05)
    if step == 16 and not first:
        time.sleep(600)  # of the steps that were left at step 12, half are done
    time.sleep(0.1)
"""
    )
    interruption = Interruption(at_step=12, after_uploads=50, notice=False, capacity_returns_after_seconds=0.0)
    training.script_capacity("quick", CapacityScript(interruptions=(interruption,)))
    prefix = {"CheckpointConfig": {"S3Uri": f"s3://{training.bucket}/quick/"}}
    training.put("code/train.py", script)
    training.call("CreateTrainingJob", **training.request("quick-1", "quick", **two(), **prefix))
    assert training.wait_ended("quick-1")["TrainingJobStatus"] == "Completed"
    lives = training.facts("quick-1").lifetimes
    assert [life.interrupted for life in lives] == [True, False]
    assert lives[0].last_step_seen == 16


def test_one_host_that_fails_fails_the_job_with_its_own_text(training):
    script = (
        BEGIN
        + """
if rank == 1:
    (base / "output" / "failure").write_text("the second host has no data")
    sys.exit(3)
(base / "output" / "failure").write_text("of the first host")
time.sleep(600)
"""
    )
    training.create("broken", script, **two())
    ended = training.wait_ended("broken")
    assert ended["TrainingJobStatus"] == "Failed"
    assert ended["FailureReason"] == "AlgorithmError: the second host has no data, exit code: 3"
    (life,) = training.facts("broken").lifetimes
    assert [host.exit_code for host in life.hosts] == [137, 3]


def test_a_job_goes_on_until_its_last_host_has_ended(training):
    script = (
        BEGIN
        + """
if rank == 1:
    time.sleep(1)
(base / "model" / f"of-{rank}").write_text("")
"""
    )
    training.create("patient", script, **two())
    assert training.wait_ended("patient")["TrainingJobStatus"] == "Completed"
    assert archive(training, "patient").keys() == {"of-0", "of-1"}


def test_a_stop_reaches_all_hosts(training, tmp_path):
    training.create("halted", TRAIN, tmp_path, **two())
    training.wait_for_step("halted", 2)
    training.stop("halted")
    assert training.wait_ended("halted")["TrainingJobStatus"] == "Stopped"
    (life,) = training.facts("halted").lifetimes
    assert [host.exit_code for host in life.hosts] == [75, 75]
    assert life.unsent_files == ()


def test_a_server_that_comes_back_takes_all_hosts_up_again(training, tmp_path):
    training.create("kept", TRAIN, tmp_path, **two())
    training.wait_until(lambda: training.objects("checkpoints/"))
    training.restart()
    assert training.wait_ended("kept")["TrainingJobStatus"] == "Completed"
    first, second = training.facts("kept").lifetimes
    assert len(first.hosts) == len(second.hosts) == 2
    assert len(streams(training, "kept")) == 2


def test_hosts_of_a_warm_pool_are_handed_on_one_by_one(training):
    script = (
        BEGIN
        + """
cache = base / "sagemaker/warmpoolcache"
cache.mkdir(parents=True, exist_ok=True)
print("cached", rank, [path.name for path in cache.iterdir()], flush=True)
(cache / f"of-{rank}").touch()
"""
    )
    warm = two(KeepAlivePeriodInSeconds=600)
    training.create("first", script, spot=False, **warm)
    assert training.wait_ended("first")["WarmPoolStatus"]["Status"] == "Available"
    training.create("second", script, spot=False, **warm)
    training.wait_ended("second")
    assert training.describe("first")["WarmPoolStatus"]["ReusedByJob"] == "second"
    assert {"cached 0 ['of-0']", "cached 1 ['of-1']"} <= set(training.log("second"))


def test_a_channel_that_is_divided_by_key_gives_each_host_its_share(training):
    for name in "abcde":
        training.put(f"shards/{name}", name)
    script = (
        BEGIN
        + """
print("got", rank, sorted(path.name for path in (base / "input/data/shards").iterdir()), flush=True)
"""
    )
    shards = training.channel("shards", "shards/")
    shards["DataSource"]["S3DataSource"]["S3DataDistributionType"] = "ShardedByS3Key"
    training.create("divided", script, InputDataConfig=[training.channel("code", "code/"), shards], **two())
    training.wait_ended("divided")
    assert {"got 0 ['a', 'c', 'e']", "got 1 ['b', 'd']"} <= set(training.log("divided"))


def test_each_host_counts_against_the_quota(make_training, tmp_path):
    training = make_training(training_quota=3)
    training.put("code/train.py", TRAIN)
    training.call("CreateTrainingJob", **training.request("both", tmp_path, **two()))
    code, message = training.refusal("CreateTrainingJob", **training.request("more", **two()))
    assert code == "ResourceLimitExceeded"
    assert "2" in message
    training.stop("both")


def test_a_network_that_is_refused_later_fails_the_job(training, monkeypatch):
    if resolve_isolation(Isolation.AUTO) is not Isolation.NAMESPACE or network_refusal() is not None:
        pytest.skip("hosts have no networks of their own here")
    from spotkeep_local.hosts.host import HostRefusedError

    def refuse(*_arguments, **_options):
        raise HostRefusedError("no router today")

    monkeypatch.setattr(job_network, "join_hosts", refuse)
    training.create("unwired", TRAIN, **two())
    ended = training.wait_ended("unwired")
    assert ended["FailureReason"] == "InternalServerError: no router today"


def test_one_host_has_the_machines_network():
    network = JobNetwork(1, isolation=Isolation.NAMESPACE, endpoint_port=1)
    (place,) = network.places
    assert (place.name, place.names, place.network, place.table) == ("algo-1", ("algo-1",), None, None)
    network.close()


def test_ten_hosts_or_more_are_listed_in_the_order_of_their_names_as_text(monkeypatch):
    monkeypatch.setattr(
        job_network, "join_hosts", lambda _network, *, hosts, endpoint_port: (None, [None] * len(hosts))
    )
    network = JobNetwork(11, isolation=Isolation.NAMESPACE, endpoint_port=1)
    listed = ("algo-1", "algo-10", "algo-11", *(f"algo-{number}" for number in range(2, 10)))
    assert {place.names for place in network.places} == {listed}
    assert [place.name for place in network.places] == [f"algo-{number}" for number in range(1, 12)]
    network.close()
    # Without names the addresses stand for them, in the same order.
    alike = JobNetwork(11, isolation=Isolation.RELOCATED, endpoint_port=1).places
    order = [place.name for place in alike]
    assert [order.index(name) + 1 for name in alike[0].names] == [int(name.removeprefix("algo-")) for name in listed]
