"""A training job from request to end, through real processes, real S3 and real logs."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest

from spotkeep_local.capacity import CapacityScript, EventFaults, Interruption

pytestmark = pytest.mark.long

SLEEP = "import time; print('up'); time.sleep(600)"


def interrupt(**values: object) -> CapacityScript:
    return CapacityScript(interruptions=(Interruption(**{"capacity_returns_after_seconds": 0.1} | values),))


def test_a_job_runs_from_its_data_to_its_model_and_leaves_nothing_on_the_machine(training, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "1")
    before = Path("/opt/ml").exists()
    training.put("data/one.csv", "alpha")
    training.put("data/deep/two.csv", "beta")
    training.create(
        "whole",
        """
import json, os, pathlib, sys, tempfile
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
data = base / "input/data"
train = data / "folder"
(base / "model/weights").write_text((train / "one.csv").read_text() + (train / "deep/two.csv").read_text())
(base / "output/data/extra").write_text("more")
print("files", *sorted(str(path.relative_to(data)) for path in data.rglob("*.csv")))
for name in ("hyperparameters", "inputdataconfig", "resourceconfig", "checkpointconfig"):
    print(name, (base / f"input/config/{name}.json").read_text())
print("process", json.dumps([sys.prefix, os.path.realpath(tempfile.gettempdir()), dict(os.environ)]))
""",
        # A prefix may be a folder, a key or a beginning.
        InputDataConfig=[
            training.channel("code", "code/train.py"),
            training.channel("folder", "data"),
            training.channel("key", "data/one.csv"),
            training.channel("beginning", "data/de", InputMode="FastFile"),
        ],
        HyperParameters={"rate": "0.1"},
        Environment={"COLOUR": "blue"},
    )
    ended = training.wait_ended("whole")
    assert (ended["TrainingJobStatus"], ended["SecondaryStatus"]) == ("Completed", "Completed")
    assert training.path("whole") == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    artifacts = ended["ModelArtifacts"]["S3ModelArtifacts"]
    assert artifacts == f"s3://{training.bucket}/out/whole/output/model.tar.gz"
    output = training.objects("out/")
    assert members(output["out/whole/output/model.tar.gz"]) == {"weights": b"alphabeta"}
    assert members(output["out/whole/output/output.tar.gz"]) == {"extra": b"more"}
    log = dict(line.split(" ", 1) for line in training.log("whole"))
    assert log["files"].split() == ["beginning/deep/two.csv", "folder/deep/two.csv", "folder/one.csv", "key/one.csv"]
    assert json.loads(log["hyperparameters"]) == {"rate": "0.1"}
    configuration = json.loads(log["resourceconfig"])
    assert (configuration["current_host"], configuration["hosts"]) == ("algo-1", ["algo-1"])
    # The environment is the job's own.
    prefix, temporary, environment = json.loads(log["process"])
    named = [environment[name] for name in ("TRAINING_JOB_NAME", "TRAINING_JOB_ARN", "COLOUR")]
    assert named == ["whole", ended["TrainingJobArn"], "blue"]
    assert "SECRET_OF_THE_SERVER" not in environment
    assert prefix == sys.prefix
    # Of these a client is made that reaches the local AWS and nothing else: `test_lifecycle` makes one.
    for_clients = training.local.environment()
    for_clients["AWS_CONFIG_FILE"] = for_clients["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
    assert for_clients.items() <= environment.items()
    assert Path(environment["HOME"]).is_relative_to(training.folder)
    assert Path(temporary).is_relative_to(training.folder)
    assert Path("/opt/ml").exists() == before
    assert list((training.folder / "hosts").iterdir()) == []
    # Every change of the secondary status is an event.
    assert training.events.wait_for(5) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    last = training.events.details[-1]
    assert last["TrainingJobStatus"] == "Completed"
    assert isinstance(last["CreationTime"], int)
    assert last["TrainingEndTime"] >= last["TrainingStartTime"] >= last["CreationTime"]
    assert not {"BillableTimeInSeconds", "TrainingTimeInSeconds", "WarmPoolStatus"} & set(last)


def members(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


@pytest.mark.parametrize("isolation", ["auto", "relocated"])
def test_paths_below_opt_ml_and_sockets_work_however_the_job_gets_them(make_training, isolation):
    """Its processes talk as the workers of a data loader do.

    Through Unix sockets in the temporary directory, of 104 bytes at most, however long the path to it is.
    """
    training = make_training(isolation=isolation)
    training.put(
        "code/talks.py",
        """
import multiprocessing, tempfile

if __name__ == "__main__":
    with multiprocessing.Manager() as shared, tempfile.NamedTemporaryFile() as kept:
        print(shared.list(["shared"]), kept.name)
""",
    )
    training.put(
        "code/train.sh",
        'cat /opt/ml/../ml/none; test "$1" = "${SAGEMAKER_BASE_DIR-/opt/ml}" || exit 2; '
        'echo "$2" > "$1/model/from-shell"; python3 "$1/input/data/code/talks.py" || exit 3',
    )
    request = training.request("paths")
    request["AlgorithmSpecification"] |= {
        "ContainerEntrypoint": ["/bin/sh", "-c"],
        "ContainerArguments": ["sh /opt/ml/input/data/code/train.sh /opt/ml hello"],
    }
    training.call("CreateTrainingJob", **request)
    ended = training.wait_ended("paths")
    assert ended["TrainingJobStatus"] == "Completed"
    archive = training.objects("out/")["out/paths/output/model.tar.gz"]
    assert members(archive) == {"from-shell": b"hello\n"}
    said, _, temporary = training.log("paths")[-1].rpartition(" ")
    assert said == "['shared']"
    assert not Path(temporary).exists()


def test_a_failure_tells_its_reason_and_exit_code(training):
    training.create(
        "broken",
        """
import os, pathlib, sys
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
(base / "output/failure").write_text("the data is " + "bad " * 1000)
(base / "model/weights").write_text("never")
sys.exit(3)
""",
    )
    ended = training.wait_ended("broken")
    assert (ended["TrainingJobStatus"], ended["SecondaryStatus"]) == ("Failed", "Failed")
    assert ended["FailureReason"].startswith("AlgorithmError: the data is bad bad")
    assert ended["FailureReason"].endswith(", exit code: 3")
    assert ended["ModelArtifacts"]["S3ModelArtifacts"] == ""
    assert training.objects("out/") == {}


def test_a_job_that_ended_keeps_its_name_its_tags_and_its_place(training):
    training.service.set_event_faults(EventFaults(duplicate=True))
    training.create("over", "", Tags=[{"Key": "owner", "Value": "ann"}, {"Key": "team", "Value": "x"}])
    arn = training.wait_ended("over")["TrainingJobArn"]
    assert len(training.events.wait_for(10)) == 10, "each of the five twice"
    assert training.events.details[-1]["Tags"] == {"owner": "ann", "team": "x"}
    training.call("AddTags", ResourceArn=arn, Tags=[{"Key": "owner", "Value": "bob"}])
    tags = [{"Key": "owner", "Value": "bob"}, {"Key": "team", "Value": "x"}]
    assert training.call("ListTags", ResourceArn=arn) == {"Tags": tags}
    wanted = {"Filters": [{"Name": "Tags.owner", "Value": "bob"}]}
    (found,) = training.call("Search", Resource="TrainingJob", SearchExpression=wanted)["Results"]
    assert (found["TrainingJob"]["TrainingJobName"], found["TrainingJob"]["Tags"]) == ("over", tags)

    code, message = training.refusal("CreateTrainingJob", **training.request("over"))
    assert (code, "already exists" in message) == ("ResourceInUse", True)
    assert training.refusal("StopTrainingJob", TrainingJobName="over") == (
        "ValidationException",
        "The request was rejected because the training job is in status Completed.",
    )
    debug = {"EnableRemoteDebug": True}
    _, message = training.refusal("UpdateTrainingJob", TrainingJobName="over", RemoteDebugConfig=debug)
    assert "while the job's SecondaryStatus is Downloading or Training; it is Completed" in message
    _, message = training.refusal("UpdateTrainingJob", TrainingJobName="over", ProfilerConfig={})
    assert "not its ProfilerConfig" in message
    keep = {"KeepAlivePeriodInSeconds": 60}
    _, message = training.refusal("UpdateTrainingJob", TrainingJobName="over", ResourceConfig=keep)
    assert "it has none" in message

    before = training.describe("over")
    training.restart()
    assert training.describe("over") == before


def test_what_does_not_exist_is_refused(training):
    for operation in ("DescribeTrainingJob", "StopTrainingJob"):
        assert training.refusal(operation, TrainingJobName="no-job") == (
            "ValidationException",
            "Requested resource not found.",
        )
    request = training.request("empty", InputDataConfig=[training.channel("train", "nothing/")])
    code, message = training.refusal("CreateTrainingJob", **request)
    assert code == "ValidationException"
    assert message.startswith(f'No S3 objects found under S3 URL "s3://{training.bucket}/nothing/"')


class TestCapacityLoss:
    def test_without_notice_the_job_comes_back_to_its_last_synced_step(self, training, tmp_path):
        training.script_capacity("sudden", interrupt(at_step=6, after_uploads=1, notice=False))
        training.create("sudden-1", training.resuming_script, 60, 0.05, 6, tmp_path / "waited")
        ended = training.wait_ended("sudden-1")
        assert ended["TrainingJobStatus"] == "Completed"
        once = ["Starting", "Downloading", "Training"]
        assert training.path("sudden-1") == [*once, "Interrupted", *once, "Uploading", "Completed"]
        first, second = training.facts("sudden-1").lifetimes
        assert (first.signal, first.interrupted, first.notice) == ("SIGKILL", True, False)
        assert first.exit_code == 137
        assert 6 <= first.last_step_seen < 60
        assert second.resumed_step <= first.last_step_seen
        assert (second.restored_files, second.exit_code, second.signal) == (1, 0, None)
        assert second.last_step_seen == 60
        # A script is used once.
        training.create("sudden-2", training.resuming_script, 60, 0)
        training.wait_ended("sudden-2")
        assert len(training.facts("sudden-2").lifetimes) == 1

    def test_with_notice_the_job_may_save_until_the_capacity_is_gone(self, training):
        training.script_capacity("polite", interrupt(at_fraction=0.5, notice=True, notice_seconds=30))
        training.create(
            "polite-1",
            """
import json, os, pathlib, signal, sys, time
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
saved = base / "checkpoints/last-words"
if saved.exists():
    print("restored", saved.read_text()); sys.exit()
def leave(*_):
    saved.write_text("saved in time"); sys.exit(75)
signal.signal(signal.SIGTERM, leave)
print("spotkeep-event: " + json.dumps({"event": "progress", "step": 5, "total_steps": 10}), flush=True)
time.sleep(600)
""",
        )
        assert training.wait_ended("polite-1")["TrainingJobStatus"] == "Completed"
        first, _ = training.facts("polite-1").lifetimes
        assert (first.signal, first.notice, first.exit_code) == ("SIGTERM", True, 75)
        assert training.log("polite-1")[-1] == "restored saved in time"

    def test_capacity_goes_after_so_many_uploads_and_what_was_read_again_is_known(self, training):
        training.script_capacity("silent", interrupt(at_uploads=2, notice=False))
        training.create(
            "silent-1",
            """
import os, pathlib, time
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
folder = base / "checkpoints"
found = sorted(folder.glob("model-*.txt"))
done = int(found[-1].read_text()) if found else 0
for number in range(done + 1, 5):
    # Whole when it comes: a file that is uploaded while it is written is uploaded again.
    (base / "whole.txt").write_text(str(number))
    (base / "whole.txt").rename(folder / f"model-{number}.txt")
    while not (folder / f"model-{number}.txt.sagemaker-uploaded").exists():
        time.sleep(0.01)
""",
        )
        assert training.wait_ended("silent-1")["TrainingJobStatus"] == "Completed"
        first, second = training.facts("silent-1").lifetimes
        assert (first.uploads, first.stored_files) == (2, ("model-1.txt", "model-2.txt"))
        assert (second.uploads, second.read_files) == (2, ("model-2.txt",))

    def test_of_files_that_come_together_none_is_uploaded_beyond_so_many(self, training):
        training.script_capacity("several", interrupt(at_uploads=3, notice=False))
        training.create(
            "several-1",
            """
import os, pathlib, time
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
if not (base / "checkpoints" / "saved").exists():
    (base / "saved").mkdir()
    for number in range(30):
        (base / "saved" / f"part-{number:02}.txt").write_text("whole")
    (base / "saved").rename(base / "checkpoints" / "saved")
    time.sleep(600)
""",
        )
        assert training.wait_ended("several-1")["TrainingJobStatus"] == "Completed"
        first, second = training.facts("several-1").lifetimes
        assert len(first.stored_files) == 3, "which of them come first is not promised"
        assert (first.uploads, second.restored_files) == (3, 3)

    def test_nothing_is_uploaded_after_a_hard_kill(self, make_training, tmp_path):
        training = make_training(upload_delay_seconds=600.0)
        training.script_capacity("lost", interrupt(at_step=5, notice=False))
        training.create("lost-1", training.resuming_script, 20, 0.02, 5, tmp_path / "waited")
        training.wait_until(lambda: len(training.facts("lost-1").lifetimes) == 2)
        first, second = training.facts("lost-1").lifetimes
        assert first.last_step_seen in range(5, 20)
        assert (first.uploads, second.restored_files) == (0, 0)
        training.wait_ended("lost-1")
        assert training.facts("lost-1").lifetimes[1].resumed_step == 0

    def test_several_interruptions_are_taken_one_after_the_other_and_a_notice_that_is_not_heeded_ends_in_a_kill(
        self, training, tmp_path
    ):
        moments = (
            Interruption(at_step=2, notice=True, notice_seconds=0.3, capacity_returns_after_seconds=0),
            Interruption(at_seconds=0.0, notice=False, capacity_returns_after_seconds=0),
            Interruption(at_step=50, notice=False, capacity_returns_after_seconds=0),
        )
        training.script_capacity("often", CapacityScript(interruptions=moments))
        deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        training.create("often-1", deaf + training.resuming_script, 60, 0.05, 50, tmp_path / "waited")
        assert training.wait_ended("often-1")["TrainingJobStatus"] == "Completed"
        lifetimes = training.facts("often-1").lifetimes
        assert [life.interrupted for life in lifetimes] == [True, True, True, False]
        assert [life.notice for life in lifetimes] == [True, False, False, None]
        assert lifetimes[0].exit_code == 137

    def test_a_script_may_come_while_the_job_runs_which_is_stopped_while_it_waits_for_capacity(self, training):
        training.create("live-1", training.resuming_script, 1000, 0.02)
        training.wait_for_step("live-1", 3)
        never = interrupt(at_seconds=0, notice=False, capacity_returns_after_seconds=None)
        assert training.script_capacity("live", never) == ["live-1"]
        training.wait_until(lambda: training.describe("live-1")["SecondaryStatus"] == "Interrupted")
        training.stop("live-1")
        assert training.wait_ended("live-1")["SecondaryStatus"] == "Stopped"
        assert len(training.facts("live-1").lifetimes) == 1

    def test_capacity_may_be_late_and_waiting_counts_as_training_time_but_not_as_billable(self, training, tmp_path):
        moment = Interruption(at_step=1, notice=False, capacity_returns_after_seconds=2.0)
        training.script_capacity("late", CapacityScript(interruptions=(moment,), initial_wait_seconds=0.2))
        training.create("late-1", training.resuming_script, 2, 0.02, 1, tmp_path / "waited")
        ended = training.wait_ended("late-1")
        messages = [item["StatusMessage"] for item in ended["SecondaryStatusTransitions"]]
        assert messages[1] == "Insufficient capacity error from EC2 while launching instances, retrying!"
        assert ended["BillableTimeInSeconds"] < ended["TrainingTimeInSeconds"]

    def test_on_demand_capacity_is_never_taken_away_and_the_type_that_was_taken_is_described(self, training):
        training.script_capacity("steady", interrupt(at_step=1, notice=False))
        preferences = [{"InstanceType": "ml.m5.xlarge"}, {"InstanceType": "ml.m5.large"}]
        resources = {"InstancePreferences": preferences, "InstanceCount": 1, "VolumeSizeInGB": 10}
        training.create("steady-1", training.resuming_script, 3, 0.02, spot=False, ResourceConfig=resources)
        ended = training.wait_ended("steady-1")
        assert ended["ResourceConfig"] == resources | {
            "SelectedInstanceType": "ml.m5.xlarge",
            "SelectedInstanceCount": 1,
        }
        assert len(training.facts("steady-1").lifetimes) == 1


class TestAnErrorOfSageMakersOwn:
    """It comes on demand, too; RetryStrategy says how often the job starts again."""

    ERROR = Interruption(at_step=5, notice=False, capacity_returns_after_seconds=0.1, internal_error=True)

    def test_the_job_starts_again_from_its_checkpoint_by_way_of_restarting(self, training, tmp_path):
        training.script_capacity("unlucky", CapacityScript(interruptions=(self.ERROR,)))
        training.create(
            "unlucky-1", training.resuming_script, 20, 0.05, 5, tmp_path / "waited",
            spot=False, RetryStrategy={"MaximumRetryAttempts": 1},
        )  # fmt: skip
        ended = training.wait_ended("unlucky-1")
        assert ended["TrainingJobStatus"] == "Completed"
        assert training.path("unlucky-1") == [
            "Starting", "Downloading", "Training", "Restarting",
            "Starting", "Downloading", "Training", "Uploading", "Completed",
        ]  # fmt: skip
        assert [life.interrupted for life in training.facts("unlucky-1").lifetimes] == [True, False]
        assert ended["BillableTimeInSeconds"] <= ended["TrainingTimeInSeconds"]

    @pytest.mark.parametrize("strategy", [{}, {"RetryStrategy": {"MaximumRetryAttempts": 1}}])
    def test_it_fails_when_it_may_not_start_again(self, training, strategy):
        training.script_capacity("lost", CapacityScript(interruptions=(self.ERROR,) * 2))
        training.create("lost-1", training.resuming_script, 1000, 0.02, spot=False, **strategy)
        ended = training.wait_ended("lost-1")
        assert (ended["TrainingJobStatus"], ended["SecondaryStatus"]) == ("Failed", "Failed")
        assert ended["FailureReason"].startswith("InternalServerError: We encountered")
        assert training.path("lost-1").count("Restarting") == len(strategy)


class TestCheckpoints:
    def test_deletions_are_mirrored_and_markers_stay_local(self, training):
        training.create(
            "mirror",
            """
import os, pathlib, time
folder = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")) / "checkpoints"
(folder / "old").write_text("old"); (folder / "new").write_text("new")
uploaded = folder / "old.sagemaker-uploaded"
while not uploaded.exists(): time.sleep(0.01)
print("marked"); (folder / "old").unlink()
while uploaded.exists(): time.sleep(0.01)
print("unmarked")
""",
        )
        assert training.wait_ended("mirror")["TrainingJobStatus"] == "Completed"
        assert training.log("mirror") == ["marked", "unmarked"]
        assert training.objects("checkpoints/") == {"checkpoints/new": b"new"}
        (life,) = training.facts("mirror").lifetimes
        assert life.deletions == 1

    def test_another_jobs_checkpoints_are_restored_and_the_last_save_before_a_good_end_reaches_s3(self, make_training):
        training = make_training(sync_interval_seconds=600, upload_delay_seconds=600)
        training.put("checkpoints/step", "4")
        training.put("checkpoints/step.sagemaker-uploaded", "")
        training.create("heir", training.resuming_script, 5, 0)
        training.wait_ended("heir")
        (life,) = training.facts("heir").lifetimes
        assert (life.restored_files, life.resumed_step) == (1, 4)
        assert training.objects("checkpoints/")["checkpoints/step"] == b"5"


class TestStop:
    def test_one_that_has_hardly_begun(self, training):
        training.create("early", SLEEP)
        training.stop("early")
        assert training.wait_ended("early")["SecondaryStatus"] == "Stopped"

    def test_a_script_gets_sigterm_and_may_leave_a_model(self, training):
        training.create(
            "gentle",
            """
import os, pathlib, signal, sys, time
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
def leave(*_):
    (base / "model/weights").write_text("half"); sys.exit(1)
signal.signal(signal.SIGTERM, leave)
print("spotkeep-event: {\\"event\\": \\"progress\\", \\"step\\": 1}", flush=True)
time.sleep(600)
""",
        )
        training.wait_for_step("gentle", 1)
        training.stop("gentle")
        assert training.describe("gentle")["TrainingJobStatus"] in ("Stopping", "Stopped")
        ended = training.wait_ended("gentle")
        assert (ended["TrainingJobStatus"], ended["SecondaryStatus"]) == ("Stopped", "Stopped")
        assert training.path("gentle")[-3:] == ["Stopping", "Uploading", "Stopped"]
        assert members(training.objects("out/")["out/gentle/output/model.tar.gz"]) == {"weights": b"half"}

    def test_one_that_stays_is_killed(self, make_training):
        training = make_training(stop_grace_seconds=0.2)
        training.create(
            "stubborn",
            "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + training.resuming_script,
            1000,
            0.05,
        )
        training.wait_for_step("stubborn", 1)
        training.stop("stubborn")
        assert training.wait_ended("stubborn")["SecondaryStatus"] == "Stopped"
        (life,) = training.facts("stubborn").lifetimes
        assert (life.signal, life.exit_code, life.interrupted) == ("SIGKILL", 137, False)


class TestLimits:
    """A limit counts from the download of the data: a busy machine has time for what comes before the training."""

    def test_max_runtime_and_max_wait_while_waiting(self, training):
        never = interrupt(at_seconds=0.0, notice=False, capacity_returns_after_seconds=None)
        training.script_capacity("patient", never)
        training.create("patient-1", SLEEP, StoppingCondition={"MaxRuntimeInSeconds": 10, "MaxWaitTimeInSeconds": 10})
        training.create("long", SLEEP, StoppingCondition={"MaxRuntimeInSeconds": 10, "MaxWaitTimeInSeconds": 600})
        ended = training.wait_ended("patient-1")
        assert (ended["TrainingJobStatus"], ended["SecondaryStatus"]) == ("Stopped", "MaxWaitTimeExceeded")
        ended = training.wait_ended("long")
        assert (ended["TrainingJobStatus"], ended["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
        assert training.path("long")[-3:] == ["Stopping", "Uploading", "MaxRuntimeExceeded"]

    def test_max_wait_without_ever_having_capacity(self, training):
        training.script_capacity("hopeless", CapacityScript(initial_wait_seconds=3600))
        training.create("hopeless-1", "", StoppingCondition={"MaxRuntimeInSeconds": 1, "MaxWaitTimeInSeconds": 1})
        ended = training.wait_ended("hopeless-1")
        assert ended["SecondaryStatus"] == "MaxWaitTimeExceeded"
        assert "TrainingTimeInSeconds" not in ended
        assert "BillableTimeInSeconds" not in ended

    def test_a_job_that_may_be_pending_waits_where_another_fails_and_is_stopped_at_its_limit(
        self, training, monkeypatch
    ):
        # SageMaker takes half an hour at least.
        monkeypatch.setattr("spotkeep_local.training.runner.max_pending_seconds", lambda _request: 2)
        accelerated = {
            "EnableManagedSpotTraining": False,
            "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1},
        }

        def pends(name, **script):
            training.script_capacity(name, CapacityScript(gives_up_after_seconds=0.1, **script))
            limits = {"MaxRuntimeInSeconds": 60, "MaxPendingTimeInSeconds": 1_800}
            training.create(f"{name}-1", "", StoppingCondition=limits, **accelerated)
            return training.wait_ended(f"{name}-1")

        assert pends("late", initial_wait_seconds=0.5)["TrainingJobStatus"] == "Completed"
        ended = pends("never", initial_wait_seconds=3600)
        assert (ended["TrainingJobStatus"], "TrainingStartTime" in ended) == ("Stopped", False)
        assert ended["TrainingEndTime"] - ended["CreationTime"] >= 2

    def test_sagemaker_gives_up_when_there_is_no_capacity(self, training):
        training.script_capacity("scarce", CapacityScript(initial_wait_seconds=3600, gives_up_after_seconds=0.1))
        training.create("scarce-1", "")
        ended = training.wait_ended("scarce-1")
        assert (ended["TrainingJobStatus"], ended["SecondaryStatus"]) == ("Failed", "Failed")
        assert ended["FailureReason"].startswith("CapacityError: Unable to provision")
        assert "BillableTimeInSeconds" not in ended


class TestRestartOfTheServer:
    def test_a_job_is_taken_up_again_as_after_a_loss_of_capacity(self, training, tmp_path):
        training.create("survivor", training.resuming_script, 30, 0.05, 1, tmp_path / "waited")
        training.wait_until(lambda: "checkpoints/step" in training.objects())
        training.restart()
        assert training.wait_ended("survivor")["TrainingJobStatus"] == "Completed"
        assert "Interrupted" in training.path("survivor")
        first, second = training.facts("survivor").lifetimes
        assert first.ended_at is not None
        assert second.resumed_step > 0

    def test_a_job_that_waits_goes_on_waiting_its_turn(self, training, tmp_path):
        training.script_capacity("turn", interrupt(at_step=2, notice=False, capacity_returns_after_seconds=None))
        training.create("turn-1", training.resuming_script, 4, 0.05, 2, tmp_path / "waited")
        training.wait_until(lambda: training.describe("turn-1")["SecondaryStatus"] == "Interrupted")
        training.restart()
        assert training.wait_ended("turn-1")["TrainingJobStatus"] == "Completed"
        assert training.path("turn-1").count("Interrupted") == 1

    def test_a_job_that_is_uploading_has_ended_when_the_server_has(self, training):
        base = "os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml')"
        training.create("uploading", f"import os; open({base} + '/model/weights', 'wb').write(bytes(20_000_000))")
        training.wait_until(lambda: training.describe("uploading")["SecondaryStatus"] in ("Uploading", "Completed"))
        training.restart()
        assert training.describe("uploading")["TrainingJobStatus"] == "Completed"
        assert "out/uploading/output/model.tar.gz" in training.objects("out/")
        assert len(training.facts("uploading").lifetimes) == 1


def test_a_program_in_an_images_place_outlives_the_server(training):
    program = ["python3", "-c", "import sys; print('runs', sys.argv[1:])"]
    training.call("ImageProgram", "SpotkeepLocal", image="trees:1", program=program)
    training.restart()
    algorithm = {"TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/trees:1", "TrainingInputMode": "File"}
    training.create("trees", "", AlgorithmSpecification=algorithm)
    assert training.wait_ended("trees")["TrainingJobStatus"] == "Completed"
    assert training.log("trees") == ["runs ['train']"]
