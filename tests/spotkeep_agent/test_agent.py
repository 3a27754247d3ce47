"""Instances from boot to goodbye: real agents and real trainings, a cloud that is small and takes orders."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from spotkeep.notices.notice import Notice
from spotkeep_agent import agent as module
from spotkeep_agent.agent import Agent
from spotkeep_agent.identity import InstanceIdentity
from spotkeep_agent.nodes.decisions import INTERRUPTED
from spotkeep_agent.nodes.outcome import Outcome
from spotkeep_agent.settings import read_settings
from spotkeep_agent.training.node_copies import NodeCopies
from spotkeep_agent.training.shared_copies import SharedCopies
from spotkeep_fleet.record import FAILED, FINISHED, INPUT_ERROR, TRAINING, FleetRecord, Lease, reopened
from spotkeep_fleet.training_spec import HangLimit

from .cloud import CREDENTIALS_FUNCTION, DEPLOYMENT, REBALANCE, RUN, Cloud
from .conftest import HELD, STEPS, ends_well, events_of, job, launch, one_volume, steps_of, total


def test_a_run_from_its_first_boot_to_its_end(cloud: Cloud) -> None:
    launch(cloud, launch="feed" * 8)
    instance = cloud.boot("us-east-1a")
    assert instance.finish() == 0
    record = cloud.record
    assert record.training.state == FINISHED
    assert record.training.exit_code == 0
    assert record.training.step == 6
    assert record.training.uploaded_step == 6
    assert record.training.output_uri == "s3://bucket/runs/run/output/model.tar.gz"
    assert "bucket/runs/run/output/model.tar.gz" in cloud.objects
    assert record.lease is None
    assert total(cloud) == "15"
    one_volume(cloud)
    assert next(iter(cloud.ec2.volumes.values())).state == "available"
    assert [event["event"] for event in cloud.events] == ["training", "finished", "left"]
    assert any('"event":"progress"' in line for line in cloud.logged)
    # The agent's own and those of the library in the training: lines without the launch's id are read by no function.
    events = events_of(instance)
    assert {"start", "finish", "instance-training", "instance-left"} <= {event["event"] for event in events}
    assert {event.get("launch") for event in events} == {"feed" * 8}


@pytest.mark.long
def test_without_a_job_nothing_is_begun(cloud: Cloud) -> None:
    instance = cloud.boot("us-east-1a")
    assert instance.finish() == 3
    instance.wait_for("no fleet job")
    assert not cloud.ec2.volumes


@pytest.mark.long
def test_after_a_notice_the_next_instance_goes_on_at_the_same_step(cloud: Cloud) -> None:
    """In another zone; `test_interrupted_phases` has every phase, with and without a notice, in both zones."""
    launch(cloud, **HELD)
    first = cloud.boot("us-east-1a")
    first.wait_for('"event":"saved"')
    first.announce(60)
    assert first.finish() == 0
    assert cloud.record.lease is None
    assert (cloud.record.training.interruptions, cloud.record.training.noticed[0].instance) == (1, first.id)
    first.power_off()
    cloud.new_job(job())
    second = cloud.boot("us-east-1b")
    ends_well(cloud, second)
    assert steps_of(second, "resume") == steps_of(first, "saved")[-1:]
    assert cloud.record.volume is not None
    assert cloud.record.volume.zone == "us-east-1b"
    one_volume(cloud)


@pytest.mark.long
def test_in_its_first_hour_an_instance_lets_go_and_waits_for_ec2_which_then_bills_nothing(cloud: Cloud) -> None:
    launch(cloud, **HELD)
    instance = cloud.boot("us-east-1a", launched_at=time.time() - 60)
    instance.wait_for('"event":"saved"')
    instance.announce(600)
    instance.wait_for("waiting for it")
    assert cloud.record.lease is None
    assert {volume.state for volume in cloud.ec2.volumes.values()} == {"available"}
    assert instance.agent is not None
    assert instance.agent.poll() is None
    instance.agent.terminate()  # the shutdown in good order with which EC2 may begin
    assert instance.finish(seconds=60) == 0


def quick_agent(said: list[str]) -> Agent:
    environment = {
        "SPOTKEEP_RUN_TABLE": "runs",
        "SPOTKEEP_CREDENTIALS_FUNCTION": CREDENTIALS_FUNCTION,
        "SPOTKEEP_DEPLOYMENT": DEPLOYMENT,
        "SPOTKEEP_LOCAL_TIME_SCALE": "100",
    }
    metadata: Any = None
    return Agent(settings=read_settings(environment), environment=environment, metadata=metadata, say=said.append)


def test_an_instance_that_ec2_does_not_take_in_time_goes_by_itself() -> None:
    said: list[str] = []
    agent = quick_agent(said)
    agent._identity = InstanceIdentity(
        "i-1", "us-east-1a", "us-east-1", "g5.xlarge", RUN, DEPLOYMENT, launched_at=time.time() - 60
    )
    taken_at = agent._board.taken_at = time.time() + 0.2
    agent._linger()
    assert time.time() > taken_at + 0.6, "a minute later, which is 0.6 s here"
    assert any("waiting for it" in line for line in said)


@pytest.mark.parametrize(
    ("kind", "notice", "waits"),
    [(NodeCopies, False, True), (SharedCopies, False, False), (SharedCopies, True, True)],
)
def test_a_world_waits_for_s3_where_the_next_one_needs_it_or_this_node_leaves(
    kind: type[NodeCopies], notice: bool, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, seconds = quick_agent([]), list[float]()

    def finish_copies(left: Callable[[], float], **_: Any) -> bool:
        seconds.append(left())
        return True

    nodes: Any = SimpleNamespace(copies=kind, finish_copies=finish_copies)
    process: Any = SimpleNamespace(exit_code=75)
    agent._nodes = nodes
    if notice:
        agent._board.notice = Notice(source="EC2", deadline=time.time() + 120)
    monkeypatch.setattr(agent._reports, "record_progress", lambda: None)
    monkeypatch.setattr(module, "outcome_of_world", lambda *_, **__: Outcome(INTERRUPTED, 75))
    agent._after_exit(process)
    assert [left > 0 for left in seconds] == [waits]


@pytest.mark.long
def test_without_a_notice_at_most_an_interval_is_lost_and_a_recovery_makes_at_most_twelve_calls(cloud: Cloud) -> None:
    """In the same zone, and with the agent's own download, which user data makes: eleven here."""
    launch(cloud, steps=12, held_at=10, pause=0.1)
    first = cloud.boot("us-east-1a")
    first.wait_for('"step":10')
    first.power_off()
    cloud.calls.clear()
    cloud.renewals = 0
    second = cloud.boot("us-east-1a")
    second.wait_for('"event":"instance-training"')
    made = dict(cloud.calls)  # later ones may be those of the copies in S3, which are made beside the training
    # The lease of 90 s is one of 4.5 s here, which a busy machine renews before the training has begun.
    assert sum(made.values()) - cloud.renewals <= 11, made
    assert "CreateSnapshot" not in made
    second.wait_for('"event":"resume"')
    second.power_off()
    cloud.new_job(job(steps=12))
    third = cloud.boot("us-east-1a")
    ends_well(cloud, third, steps=12)
    assert steps_of(second, "resume")[0] >= 8
    assert steps_of(third, "resume")[0] >= 8
    one_volume(cloud)


@pytest.mark.long
def test_s3_alone_suffices_when_the_volume_is_lost_and_a_notice_does_not_wait_for_it(cloud: Cloud) -> None:
    launch(cloud, **HELD)
    first = cloud.boot("us-east-1a")
    first.wait_for('"event":"uploaded"')
    first.announce(60)
    assert first.finish() == 0
    first.power_off()
    cloud.new_job(job())
    cloud.change(
        lambda record: replace(
            record,
            volume=None,
            training=replace(record.training, uploaded_step=None),
        )
    )
    cloud.ec2.volumes.clear()
    cloud.held.add(("GET", "/checkpoints/step"))
    second = cloud.boot("us-east-1b")
    second.wait_for("volume: Ready")
    second.announce(60)
    assert second.finish() == 0
    cloud.held.clear()
    third = cloud.boot("us-east-1b")
    ends_well(cloud, third)
    assert steps_of(third, "downloaded") == steps_of(first, "saved")[-1:]


OWN_FILES = """
import os, pathlib, time

saved = pathlib.Path(os.environ["SPOTKEEP_CHECKPOINT_DIR"], "epochs/last.txt")
if not saved.exists():
    saved.parent.mkdir()
    saved.write_text("5 epochs")
    print("waits to be interrupted", flush=True)
    time.sleep(600)
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], "curve").write_text("goes on after " + saved.read_text())
"""


@pytest.mark.long
def test_a_script_with_files_of_its_own_goes_on_from_them_when_the_volume_is_lost(cloud: Cloud) -> None:
    launch(cloud, script=OWN_FILES)
    first = cloud.boot("us-east-1a")
    first.wait_for("waits to be interrupted")
    copy = "bucket/runs/run/checkpoints/epochs/last.txt"
    deadline = time.monotonic() + 120
    while copy not in cloud.objects:
        assert time.monotonic() < deadline, first.lines
        time.sleep(0.05)
    first.power_off()
    cloud.change(lambda record: replace(record, volume=None))
    cloud.ec2.volumes.clear()
    second = cloud.boot("us-east-1b")
    assert second.finish() == 0
    second.wait_for('"event":"output-sent"')
    archive = io.BytesIO(cloud.objects["bucket/runs/run/output/output.tar.gz"][0])
    with tarfile.open(fileobj=archive) as packed:
        curve = packed.extractfile("curve")
        assert curve is not None
        assert curve.read() == b"goes on after 5 epochs"
    assert copy in cloud.objects
    assert cloud.record.training.output_uri is None, "there is no model"
    assert cloud.record.kept == ()


@pytest.mark.long
def test_a_script_that_is_done_after_a_notice_has_all_of_it_in_s3(cloud: Cloud) -> None:
    launch(
        cloud,
        script="""
import os, pathlib, signal
import spotkeep
with spotkeep.Checkpointer({}) as checkpointer:
    for step in checkpointer.steps(3):
        pass
signal.signal(signal.SIGTERM, lambda *_: None)
print("waits for the notice", flush=True)
signal.pause()
pathlib.Path(os.environ["SPOTKEEP_CHECKPOINT_DIR"], "last").write_text("x")
pathlib.Path(os.environ["SM_MODEL_DIR"], "model").write_text("x")
""",
    )
    instance = cloud.boot("us-east-1a")
    instance.wait_for("waits for the notice")
    instance.announce(60)
    assert instance.finish() == 0
    assert cloud.record.training.state == FINISHED
    assert {"bucket/runs/run/checkpoints/last", "bucket/runs/run/output/model.tar.gz"} <= set(cloud.objects)
    assert cloud.record.kept == ()


ENDS_WITH_0 = """
import os, pathlib, signal, sys
import spotkeep
kept = pathlib.Path(os.environ["SPOTKEEP_CHECKPOINT_DIR"], "starts")
starts = len(kept.read_text()) if kept.exists() else 0
kept.write_text("x" * (starts + 1))
assert [path.name for path in kept.parent.iterdir()] == ["starts"], "the script finds its own files only"
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
spotkeep.report_progress(step=starts)
if starts < int(os.environ["NOTICED_STARTS"]):
    print("waits for the notice", flush=True)
    signal.pause()
pathlib.Path(os.environ["SM_MODEL_DIR"], "model").write_text(str(starts))
"""
"""As Lightning's Trainer: on SIGTERM it ends with 0 and is not done."""


@pytest.mark.long
@pytest.mark.parametrize(("noticed_starts", "starts"), [(1, 2), (9, 3)])
def test_a_script_that_ends_with_0_on_a_notice_is_started_again_by_the_next_instance(
    cloud: Cloud, noticed_starts: int, starts: int
) -> None:
    """Until it ends so without a notice; the third notice in a row counts as its end, too."""
    launch(cloud, script=ENDS_WITH_0, environment={"NOTICED_STARTS": str(noticed_starts)}, launch="feed" * 8)
    for number in range(1, starts + 1):
        assert cloud.record.training.state != FINISHED
        instance = cloud.boot("us-east-1a" if number < 3 else "us-east-1b")
        if number <= noticed_starts:
            instance.wait_for("waits for the notice")
            instance.announce(60)
        assert instance.finish() == 0
        instance.power_off()
    training = cloud.record.training
    assert (training.state, training.exit_code, training.script_failures) == (FINISHED, 0, 0)
    assert training.interruptions == starts - 1
    codes = [event["code"] for event in events_of(instance) if event["event"] == "exit-on-notice"]
    assert codes == ([] if number > noticed_starts else [0])
    assert not [name for name in cloud.objects if "exits-on-notice" in name]


@pytest.mark.long
def test_a_script_that_ends_with_0_because_it_is_asked_to_stop_has_not_finished(cloud: Cloud) -> None:
    launch(cloud, script=ENDS_WITH_0, environment={"NOTICED_STARTS": "1"})
    instance = cloud.boot("us-east-1a")
    instance.wait_for("waits for the notice")
    cloud.change(lambda record: replace(record, stop_requested=True))
    assert instance.finish() == 0
    instance.wait_for("left: the run is asked to stop")
    assert cloud.record.training.state != FINISHED


@pytest.mark.long
def test_a_run_whose_model_s3_refuses_has_not_finished_and_sends_it_once_it_is_resumed(cloud: Cloud) -> None:
    launch(cloud)
    cloud.refusing["output/model"] = "AccessDenied"
    instance = cloud.boot("us-east-1a")
    assert instance.finish() == 0
    assert '"what":"the model"' in instance.wait_for('"event":"not-in-s3"')
    record = cloud.record
    assert (record.training.state, record.training.exit_code, record.kept) == (INPUT_ERROR, 0, ())
    assert record.training.failure is not None
    assert record.training.failure.startswith("the model could not be sent to s3://bucket/runs/run/output/: ")
    assert "AccessDenied" in record.training.failure
    assert record.volume is not None
    cloud.refusing.clear()
    cloud.change(reopened)
    resumed = cloud.boot("us-east-1a")
    ends_well(cloud, resumed)
    assert steps_of(resumed, "resume") == [STEPS], "nothing is trained twice"
    assert "bucket/runs/run/output/model.tar.gz" in cloud.objects


@pytest.mark.long
def test_a_model_is_sent_again_until_s3_takes_it(cloud: Cloud) -> None:
    launch(cloud)
    cloud.refusing["output/model"] = "NoSuchUpload"  # which the calls do not repeat by themselves
    instance = cloud.boot("us-east-1a")
    instance.wait_for("the model could not be sent")
    cloud.refusing.clear()
    ends_well(cloud, instance)
    assert "bucket/runs/run/output/model.tar.gz" in cloud.objects


@pytest.mark.long
def test_an_instance_that_is_taken_before_its_model_is_sent_leaves_it_to_the_next(cloud: Cloud) -> None:
    launch(cloud)
    cloud.refusing["output/model"] = "NoSuchUpload"
    instance = cloud.boot("us-east-1a")
    instance.wait_for("the model could not be sent")
    instance.announce(60)
    assert instance.finish() == 0
    assert cloud.record.training.state == TRAINING
    cloud.refusing.clear()
    ends_well(cloud, cloud.boot("us-east-1a"))
    assert "bucket/runs/run/output/model.tar.gz" in cloud.objects


FAILS_TWICE = """
import os, pathlib, signal

failed = pathlib.Path(os.environ["SPOTKEEP_CHECKPOINT_DIR"], "failed")
if not failed.exists():
    failed.touch()
    raise SystemExit(75)  # as after a notice: without one, an instance would come after the other for ever
os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
"""


@pytest.mark.long
def test_a_script_that_fails_is_no_success_no_interruption_and_is_tried_again(cloud: Cloud) -> None:
    """The fleet cancelled without reading the exit code makes a crash look like a success (trap 8)."""
    launch(cloud, script=FAILS_TWICE, max_script_retries=1)
    instance = cloud.boot("us-east-1a")
    assert instance.finish() == 0
    training = cloud.record.training
    assert (training.state, training.exit_code, training.script_failures) == (FAILED, 137, 2)
    assert "was killed by signal 9" in (training.failure or "")
    assert training.interruptions == 0
    assert [event["event"] for event in cloud.events] == ["training", "script-failed", "training", "failed", "left"]
    assert cloud.events[1]["exit_code"] == 75


@pytest.mark.long
def test_a_signal_that_stops_the_agent_saves_and_is_no_interruption(cloud: Cloud) -> None:
    """`systemctl stop`, or a shutdown: what is taken by AWS, the metadata service says."""
    launch(cloud, **HELD)
    instance = cloud.boot("us-east-1a")
    instance.wait_for('"event":"saved"')
    assert instance.agent is not None
    instance.agent.terminate()
    assert instance.finish() == 0
    instance.wait_for("left: SIGTERM, and no notice of EC2's")
    training = cloud.record.training
    assert (training.interruptions, training.script_failures) == (0, 0)
    assert training.durable_step == steps_of(instance, "saved")[-1]
    assert cloud.record.lease is None


@pytest.mark.long
def test_a_notice_that_the_training_hears_of_first_is_an_interruption(cloud: Cloud) -> None:
    script = """
import os, pathlib, time
print("ready", flush=True)
while not pathlib.Path(os.environ["SPOTKEEP_LOCAL_INSTANCE_ROOT"], "heard").exists():
    time.sleep(0.01)
raise SystemExit(75)
"""
    launch(cloud, script=script)
    instance = cloud.boot("us-east-1a", SPOTKEEP_LOCAL_TIME_SCALE="1")
    instance.wait_for("ready")
    instance.announce(60)
    (instance.root / "heard").touch()
    assert instance.finish() == 0
    instance.wait_for("left: notice: EC2 terminate")
    training = cloud.record.training
    assert (training.interruptions, training.script_failures) == (1, 0)


@pytest.mark.long
def test_a_second_instance_waits_until_the_first_has_let_go(cloud: Cloud) -> None:
    """No wait, and no lock, and two instances write (trap 7)."""
    launch(cloud, **HELD)
    first = cloud.boot("us-east-1a")
    first.wait_for('"event":"saved"')
    second = cloud.boot("us-east-1a")
    second.wait_for("the lease of another instance")
    cloud.ec2.release_seconds = 1.0
    first.announce(60)
    assert first.finish() == 0
    second.wait_for('"event":"resume"')
    assert steps_of(second, "resume") == steps_of(first, "saved")[-1:]


@pytest.mark.long
def test_an_agent_that_crashed_is_started_again_and_ends_what_the_old_one_left(cloud: Cloud) -> None:
    launch(cloud, **HELD)
    instance = cloud.boot("us-east-1a")
    instance.wait_for('"event":"saved"')
    instance.kill_agent()
    instance.lines.clear()
    instance.start_agent()
    instance.wait_for('"event":"resume"')
    assert len(cloud.ec2.volumes) == 1


GOES_ON_AFTER_A_SAVE = """
import time
from spotkeep import Checkpointer

with Checkpointer({}, every_steps=10**6) as checkpointer:
    for step in checkpointer.steps(10**6):
        time.sleep(0.01)
        if step > (checkpointer.durable_step or step) + 2:
            break
"""


@pytest.mark.long
def test_on_a_rebalance_recommendation_the_training_saves_and_goes_on(cloud: Cloud) -> None:
    launch(cloud, script=GOES_ON_AFTER_A_SAVE)
    instance = cloud.boot("us-east-1a", metadata=dict([REBALANCE]))
    assert instance.finish() == 0
    instance.wait_for('"reason":"rebalance"')
    assert (cloud.record.training.state, cloud.record.training.interruptions) == (FINISHED, 0)


@pytest.mark.long
def test_a_rebalance_recommendation_can_be_a_reason_to_leave(cloud: Cloud) -> None:
    launch(cloud, **HELD, rebalance="leave")
    instance = cloud.boot("us-east-1a")
    instance.recommend_rebalance()
    instance.wait_for("EC2 rebalance")
    assert instance.finish() == 0
    assert cloud.record.training.interruptions == 1
    assert [each.instance for each in cloud.record.training.noticed] == [instance.id]
    assert cloud.record.lease is None


@pytest.mark.long
def test_a_stop_that_is_asked_for_saves_and_leaves(cloud: Cloud) -> None:
    launch(cloud, **HELD)
    instance = cloud.boot("us-east-1a")
    instance.wait_for('"event":"saved"')
    cloud.change(lambda record: replace(record, stop_requested=True))
    assert instance.finish() == 0
    assert cloud.record.lease is None
    assert cloud.record.training.durable_step == steps_of(instance, "saved")[-1]


@pytest.mark.long
def test_a_lease_that_is_lost_ends_the_training_and_lets_the_volume_go(cloud: Cloud) -> None:
    def steal(record: FleetRecord) -> FleetRecord:
        return replace(record, fence=9, lease=Lease("i-9", 9, 8e9))

    launch(cloud, **HELD)
    instance = cloud.boot("us-east-1a")
    instance.wait_for('"event":"saved"')
    cloud.change(steal)
    instance.finish()
    assert cloud.record.lease == Lease("i-9", 9, 8e9)
    assert {volume.state for volume in cloud.ec2.volumes.values()} == {"available"}


HANGS = """
import os, signal, subprocess, time
from spotkeep import Checkpointer

state = {"total": 0}
with Checkpointer(state, every_steps=2) as checkpointer:
    for step in checkpointer.steps(6):
        state["total"] += step
        if step == 4 and not os.path.exists("hung"):
            checkpointer.wait()  # What is stopped writes nothing.
            open("hung", "w").close()
            subprocess.Popen(["sleep", "600"], start_new_session=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "total"), "w") as file:
    file.write(str(state["total"]))
"""


@pytest.mark.long
def test_a_training_that_hangs_is_started_again_on_the_same_instance(cloud: Cloud) -> None:
    environment = {"SPOTKEEP_NOTICE_SECONDS": "1"}
    launch(cloud, script=HANGS, stuck=HangLimit(15, restart=True, at_most=1), environment=environment)
    instance = cloud.boot("us-east-1a")
    ends_well(cloud, instance)
    training = cloud.record.training
    assert (training.state, training.interruptions, training.script_failures) == (FINISHED, 0, 0)
    said = [event["event"] for event in events_of(instance)]
    assert [name for name in said if name in {"start", "resume", "stuck", "finish"}] == [
        "start", "resume", "stuck", "start", "resume", "finish",
    ]  # fmt: skip
    assert steps_of(instance, "resume") == [0, 4]
    assert any('"event":"stuck"' in line for line in cloud.logged)


@pytest.mark.long
def test_a_training_that_hangs_again_and_again_fails_with_the_reason(cloud: Cloud) -> None:
    script = "import time; time.sleep(600)"
    environment = {"SPOTKEEP_NOTICE_SECONDS": "0.2"}
    stuck = HangLimit(2, restart=True, at_most=1)
    launch(cloud, script=script, stuck=stuck, environment=environment, max_script_retries=0)
    instance = cloud.boot("us-east-1a")
    instance.finish()
    assert cloud.record.training.state == FAILED
    assert cloud.record.training.failure == (
        "the command hung: no step and no line of output for 2 s (stuck), once more after 1 starts from its checkpoint "
        "(stuck.at_most)"
    )
