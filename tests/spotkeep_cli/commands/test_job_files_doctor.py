"""`doctor` finds what the launcher would refuse, and what no user means."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from syrupy.assertion import SnapshotAssertion

from spotkeep_cli.account.check import (
    AccountCheck,
    OwnTrainingJobs,
    Quota,
    ServiceRole,
    Usage,
    in_order,
    read_quotas,
    surprises_of_runs,
    wanted_quotas,
)
from spotkeep_cli.account.vcpu_quotas import NodesQuota
from spotkeep_cli.errors import ExitCode
from spotkeep_jobs.record.deployment_records import RULES, Finding, Handled, OrphanKind, OrphanOutcome, OrphanReport
from spotkeep_jobs.record.record import QueuePlace
from spotkeep_jobs.record.states import RunState
from tests.models.sagemaker import SageMaker
from tests.spotkeep_cli.conftest import CONNECTION


@pytest.fixture
def accepted(deployment: Any) -> Any:
    deployment.answers["validate"] = {"ok": True, "request": {}, "warnings": []}
    return deployment


def warnings_of(result: Any) -> list[str]:
    return [warning["problem"] for warning in json.loads(result.stdout)["warnings"]]


def test_a_good_job_has_nothing_wrong(
    accepted: Any, spotkeep: Any, job_file: Path, snapshot: SnapshotAssertion
) -> None:
    result = spotkeep("doctor", "job.yaml")
    assert result.exit_code == ExitCode.DONE
    assert result.output == snapshot


def test_a_job_on_a_file_system_is_not_sent_to_a_rehearsal_which_refuses_it(
    accepted: Any, spotkeep: Any, job_file: Path
) -> None:
    channel = "channels={train: {efs: fs-0123456789abcdef0, path: /a}}"
    assert "Next: spotkeep launch job.yaml  launch it\n" in spotkeep("doctor", "job.yaml", "--set", channel).output


def test_without_a_deployment_the_same_rules_apply_here(
    spotkeep: Any, job_file: Path, snapshot: SnapshotAssertion
) -> None:
    result = spotkeep("doctor", "job.yaml", "--set", "max_wait=1h", "--set", "max_runn=2h", reachable=False)
    assert result.exit_code == ExitCode.REFUSED
    assert result.output == snapshot


def test_validate_is_another_name_of_it(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    judged = spotkeep("doctor", str(job_file))
    assert (spotkeep("validate", str(job_file)).output, judged.exit_code) == (judged.output, ExitCode.DONE)


def test_json_says_who_judged(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    assert json.loads(spotkeep("doctor", str(job_file), "--json").stdout) == {
        "ok": True,
        "checked_by": "the launcher",
        "problems": [],
        "warnings": [],
        "spot_or_pool": None,
    }
    assert [call["action"] for call in accepted.invocations] == ["validate"]
    assert accepted.uploads == {}
    refused = spotkeep("doctor", str(job_file), "--json", "--set", "max_run=40d", reachable=False)
    assert refused.exit_code == ExitCode.REFUSED
    document = json.loads(refused.stdout)
    assert (document["ok"], document["checked_by"]) == (False, "here")
    assert document["problems"][0]["field"] == "max_run"


def test_a_deployment_that_breaks_is_not_a_missing_one(deployment: Any, spotkeep: Any, job_file: Path) -> None:
    deployment.answers["validate"] = {"status": "fine"}
    assert spotkeep("doctor", str(job_file)).exit_code == ExitCode.LAUNCHER_FAILED


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"command": "python -m missing.module"}, None),
        ({"command": ["bash", "run.sh"]}, "a shell does not pass SIGTERM on"),
        ({"command": 'bash -c "python train.py"'}, "a shell does not pass SIGTERM on"),
        ({"command": ["sh", "-c", 'exec "./$0" "$@"', "train.py"]}, "a shell does not pass SIGTERM on"),
        ({"command": 'bash -c "exec python train.py"'}, None),
        ({"command": "cd src\nbash run.sh\n"}, None),
        ({"command": "cd src && cd .. && python train.py\n"}, None),
        ({"command": "git clone https://host/x && cd x && python main.py\n"}, None),
        ({"command": "cd $DIR\npython main.py\n"}, None),
        ({"command": "cd ''\npython main.py\n"}, None),
        # The launcher says that these are refused, or that the image's own entry point runs.
        ({"command": "python prepare.py && python trian.py"}, None),
        ({"command": []}, None),
        ({"command": ""}, None),
        ({"command": None, "source": None}, None),
        ({"command": "(cd src && python train.py)\nmkdir -p a && cd a && python ../train.py\n"}, None),
        ({"command": "mkdir -p a && cd a && python ../train.py\n"}, None),
        ({"command": "echo 'import train' > main.py\npython main.py\n"}, None),
        (
            {"command": "if true\npython train.py\n"},
            "bash cannot read it: line 3: syntax error: unexpected end of file",
        ),
        ({"setup": "apt-get update\nif true\n"}, "bash cannot read it: line 3: syntax error: unexpected end of file"),
        ({"checkpoints": False, "max_run": "30m"}, "on spot without checkpoints every interruption starts from zero"),
        ({"checkpoints": False, "capacity": "on-demand"}, None),
        ({"source": None}, "no source is given, so the image itself must hold train.py"),
        ({"source": None, "command": "/opt/program/train"}, None),
    ],
)
def test_what_is_allowed_and_rarely_meant(
    accepted: Any, spotkeep: Any, job_file: Path, changes: dict[str, object], warning: str | None
) -> None:
    overrides = [part for name, value in changes.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    found = warnings_of(spotkeep("doctor", str(job_file), "--json", *overrides))
    assert [text for text in found if warning is None or warning in text] == ([] if warning is None else found)
    assert len(found) == (0 if warning is None else 1)


def test_spot_without_checkpoints_is_one_warning(spotkeep: Any, job_file: Path) -> None:
    changes = ("--set", "checkpoints=false", "--set", "max_run=30m")
    on_sagemaker = warnings_of(
        spotkeep("doctor", "job.yaml", "--json", *changes, "--set", "max_wait=1h", reachable=False)
    )
    [warning] = [text for text in on_sagemaker if "checkpoints" in text]
    assert "on spot without checkpoints every interruption starts from zero" in warning
    on_ec2 = ("--set", "backend=ec2", "--set", "instance_type=m5.large")
    found = warnings_of(spotkeep("doctor", "job.yaml", "--json", *changes, *on_ec2, reachable=False))
    [warning] = [text for text in found if "checkpoints" in text]
    assert "what the script saves is on the volume alone, and is lost with it" in warning


@pytest.mark.parametrize("verb", ["doctor", "launch"])
@pytest.mark.parametrize(
    "command", ["python3 -u trian.py", "torchrun --no-python python trian.py", "echo starts >&2\npython trian.py\n"]
)
def test_a_script_that_is_in_no_source_and_no_image_is_refused(
    accepted: Any, spotkeep: Any, job_file: Path, verb: str, command: str
) -> None:
    result = spotkeep(verb, "job.yaml", "--set", f"command={json.dumps(command)}")
    assert result.exit_code == ExitCode.REFUSED
    assert "trian.py is not among the 2 files of the source" in result.output
    assert "did you mean train.py?" in result.output
    assert result.output.count("trian.py is not") == 1
    assert [call["action"] for call in accepted.invocations] == ["validate"]


def test_what_is_a_block_of_lines_is_said(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    blocks = ["--set", "setup=|\n  apt-get update\n\n  apt-get install -y x\n"]
    said = spotkeep("doctor", str(job_file), *blocks).output
    assert "setup: 2 lines for bash -euo pipefail, which ends at the first that fails" in said
    assert "command: " not in said


def test_a_script_that_never_saves(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    (job_file.parent / "train.py").write_text("print('training')\n")
    [warning] = warnings_of(spotkeep("doctor", str(job_file), "--json"))
    assert "would start it from zero" in warning


def test_a_requirements_file_that_is_not_in_the_source(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    [warning] = warnings_of(spotkeep("doctor", str(job_file), "--json", "--set", "install=requirements/train.txt"))
    assert warning.startswith("requirements/train.txt is not among the ")


@pytest.mark.parametrize(
    ("text", "warns"),
    [
        ("a==1\nb==2\n", False),
        ("--no-index\n# all\na==1 \\\n  --hash=sha256:00\nb==2 --hash=sha256:11\n", False),
        ("a==1 \\\n  --hash=sha256:00\nb==2\n", True),
    ],
)
def test_a_requirements_file_with_some_hashes(
    accepted: Any, spotkeep: Any, job_file: Path, text: str, warns: bool
) -> None:
    (job_file.parent / "requirements.txt").write_text(text)
    found = warnings_of(spotkeep("doctor", str(job_file), "--json"))
    assert found == (["1 of 2 requirements have no hash, b==2 first: pip then installs none"] if warns else [])
    assert warnings_of(spotkeep("doctor", str(job_file), "--json", "--set", "install=none")) == []


def test_a_module_is_found_as_its_file(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    (job_file.parent / "pkg").mkdir()
    (job_file.parent / "pkg" / "train.py").write_text("import spotkeep\nthis is no Python\n")
    result = spotkeep("doctor", str(job_file), "--json", "--set", "command=python -m pkg.train")
    assert warnings_of(result)[0].startswith("pkg/train.py:2 does not compile")


def test_a_shell_script_that_hands_over_with_exec(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    (job_file.parent / "run.sh").write_text("#!/bin/sh\nexec python train.py\n")
    assert warnings_of(spotkeep("doctor", str(job_file), "--json", "--set", "command=sh run.sh")) == []


def test_a_script_that_git_ignores(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    import subprocess

    subprocess.run(["git", "-C", str(job_file.parent), "init", "-q"], check=True)
    (job_file.parent / ".gitignore").write_text("train.py\n")
    result = spotkeep("doctor", str(job_file), "--json")
    assert "git ignores it" in json.loads(result.stdout)["problems"][0]["fix"]


def test_warnings_stand_in_the_order_of_the_file(accepted: Any, spotkeep: Any, job_file: Path) -> None:
    accepted.answers["validate"]["warnings"] = ["the image is not in Amazon ECR"]
    result = spotkeep("doctor", str(job_file), "--set", "capacity=spot", "--set", "checkpoints=false")
    assert result.exit_code == ExitCode.DONE
    assert result.stdout.index("checkpoints") < result.stdout.index("Next:")
    assert "! the image is not in Amazon ECR" in result.stdout


@pytest.mark.parametrize("command", ["doctor", "launch"])
def test_a_source_that_is_not_there_is_reported_with_the_other_problems(
    deployment: Any, spotkeep: Any, job_file: Path, command: str
) -> None:
    problem = {"field": "max_run", "found": "'40d'", "problem": "is out of range", "fix": "Choose less."}
    deployment.answers["validate"] = {"ok": False, "problems": [problem], "warnings": []}
    result = spotkeep(command, str(job_file), "--set", "max_run=40d", "--set", "source=nowhere")
    assert result.exit_code == ExitCode.REFUSED
    assert "max_run" in result.output
    assert "there is no directory nowhere" in result.output


def test_a_source_that_is_not_there_is_a_problem_even_if_the_launcher_finds_none(
    accepted: Any, spotkeep: Any, job_file: Path
) -> None:
    result = spotkeep("launch", str(job_file), "-y", "--set", "source=nowhere")
    assert result.exit_code == ExitCode.REFUSED
    assert [call["action"] for call in accepted.invocations] == ["validate"]


def a_finding(make: Any, kind: OrphanKind, **fields: Any) -> Finding:
    facts = {
        "kind": kind, "rule": RULES[kind], "subject": "stray-1", "since": make.now - timedelta(hours=3),
        "says": "training job stray-1 carries the deployment's tag and belongs to no run", "risk": "bills",
        "mend": "aws sagemaker stop-training-job --training-job-name stray-1",
    }  # fmt: skip
    return Finding.model_validate(facts | fields)


@pytest.fixture
def found(deployment: Any, make: Any) -> AccountCheck:
    pool = a_finding(
        make, OrphanKind.IDLE_POOL, usd_per_hour=1.2, says="the warm pool of digits waits until 12:30 UTC",
        risk="is billed while it waits", mend="spotkeep pool stop digits",
    )  # fmt: skip
    job = a_finding(make, OrphanKind.UNRECORDED_JOB, usd_per_hour=0.23)
    unpriced = a_finding(
        make, OrphanKind.OUTLIVING_JOB, says="training job bert-1 is in progress although its run has ended"
    )
    report = OrphanReport(
        begun_at=make.now - timedelta(minutes=20),
        removes=True,
        handled=(
            Handled(finding=job, outcome=OrphanOutcome.REPORTED),
            Handled(finding=unpriced, outcome=OrphanOutcome.REMOVED),
        ),
    )
    quotas = (
        Quota(instance_type="ml.g5.xlarge", usage=Usage.SPOT, instances=0, code="L-C2E8A5F1"),
        Quota(instance_type="ml.g5.xlarge", usage=Usage.ON_DEMAND, instances=4, code="L-0A1B2C3D"),
    )
    roles = (
        ServiceRole(name="AWSServiceRoleForEC2Fleet", service="ec2fleet.amazonaws.com", exists=False),
        ServiceRole(name="AWSServiceRoleForEC2Spot", service="spot.amazonaws.com", exists=True),
        ServiceRole(name="AWSServiceRoleForFIS", service="fis.amazonaws.com", exists=None, problem="AccessDenied: no"),
    )
    deployment.account = AccountCheck(
        service_roles=roles,
        findings=in_order([pool, job, unpriced]), unreadable={"warm pools": "AccessDenied: no"}, quotas=quotas,
        wanted={("ml.g5.xlarge", Usage.SPOT): 2, ("ml.g5.xlarge", Usage.ON_DEMAND): 4}, last_report=report,
    )  # fmt: skip
    return deployment.account  # type: ignore[no-any-return]


@pytest.mark.parametrize("columns", [100, 60])
def test_everything_has_its_cost_its_risk_and_its_command(
    found: AccountCheck, spotkeep: Any, snapshot: SnapshotAssertion, columns: int
) -> None:
    result = spotkeep("doctor", "--account", columns=columns)
    assert result.exit_code == ExitCode.ORPHAN
    assert result.output == snapshot


def test_json_says_the_same(found: AccountCheck, spotkeep: Any) -> None:
    result = spotkeep("doctor", "--account", "--json")
    assert result.exit_code == ExitCode.ORPHAN
    document = json.loads(result.stdout)
    assert document["ok"] is False
    assert [each["kind"] for each in document["findings"]] == ["unrecorded-job", "outliving-job", "idle-pool"]
    assert document["usd_per_hour"] == pytest.approx(1.43)
    assert [(each["quota_code"], each["needed"]) for each in document["missing_quotas"]] == [("L-C2E8A5F1", 2)]
    assert [each["exists"] for each in document["service_roles"]] == [False, True, None]
    assert document["unreadable"] == {"warm pools": "AccessDenied: no"}


def test_a_quota_without_room_for_all_nodes_is_named_with_the_command(
    found: AccountCheck, deployment: Any, spotkeep: Any
) -> None:
    quota = NodesQuota(
        name="All G and VT Spot Instance Requests", vcpus=64, needed=192, nodes="4 x g5.12xlarge", quota_code="L-1"
    )
    deployment.account = replace(found, nodes_quotas=(quota, replace(quota, vcpus=192, nodes="of another run")))
    said = spotkeep("doctor", "--account", columns=200).output
    assert "All G and VT Spot Instance Requests: the account may have 64 vCPUs, and 4 x g5.12xlarge have 192" in said
    assert "--service-code ec2 --quota-code L-1 --desired-value 192" in said
    assert "of another run" not in said
    document = json.loads(spotkeep("doctor", "--account", "--json").stdout)
    assert [each["vcpus"] for each in document["nodes_quotas"]] == [64, 192]


def test_an_account_in_order_is_reported_so(deployment: Any, spotkeep: Any) -> None:
    result = spotkeep("doctor", "--account")
    assert result.exit_code == ExitCode.DONE
    assert "spotkeep in eu-central-1: no orphans" in result.output
    assert "The controller has made no pass over orphans yet." in result.output


def test_an_idle_pool_alone_is_nothing_wrong(found: AccountCheck, deployment: Any, spotkeep: Any) -> None:
    deployment.account = replace(found, findings=found.findings[-1:], unreadable={})
    assert spotkeep("doctor", "--account").exit_code == ExitCode.DONE


def test_what_could_not_be_read_is_no_clean_bill(found: AccountCheck, deployment: Any, spotkeep: Any) -> None:
    deployment.account = replace(found, findings=())
    result = spotkeep("doctor", "--account")
    assert result.exit_code == ExitCode.NO_CONNECTION
    assert "warm pools could not be read" in result.output


@pytest.mark.parametrize("arguments", [[], ["job.yaml", "--account"]])
def test_it_checks_a_job_file_or_the_account(spotkeep: Any, arguments: list[str]) -> None:
    result = spotkeep("doctor", *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert "spotkeep doctor --account" in result.output


def test_what_other_clients_made_otherwise_than_users_expect_is_said_and_is_nothing_wrong(
    deployment: Any, spotkeep: Any
) -> None:
    deployment.account = AccountCheck(findings=(), unreadable={}, surprises={"theirs": ["its script gets no SIGTERM"]})
    result = spotkeep("doctor", "--account")
    assert result.exit_code == ExitCode.DONE
    assert "! theirs: its script gets no SIGTERM" in result.output
    document = json.loads(spotkeep("doctor", "--account", "--json").stdout)
    assert (document["ok"], document["surprises"]) == (True, {"theirs": ["its script gets no SIGTERM"]})


def test_they_are_those_of_adopted_runs_at_work(make: Any) -> None:
    sagemaker = SageMaker()
    spot = {"EnableManagedSpotTraining": True, "CheckpointConfig": {"S3Uri": "s3://theirs/"}}
    tuning = {"TuningJobArn": "arn:aws:sagemaker:us-east-1:123456789012:hyper-parameter-tuning-job/search"}
    for name in ("ours", "theirs", "theirs-too", "theirs-before", "withheld"):
        sagemaker.has_job(name, ("Training", 0.0), **spot, **({} if name == "theirs-too" else tuning))
    sagemaker.withheld["withheld"] = "ThrottlingException"
    runs = [
        make.run("ours", job_name="ours"),
        *(make.run(name, job_name=name, adopted=True) for name in ("theirs", "theirs-too", "withheld")),
        make.run("theirs-before", job_name="theirs-before", adopted=True, state=RunState.COMPLETED),
    ]
    unreadable: dict[str, str] = {}
    jobs = OwnTrainingJobs(sagemaker, clock=sagemaker.now)  # type: ignore[arg-type]
    found = surprises_of_runs(runs, jobs, unreadable=unreadable)
    assert list(found) == ["theirs"]
    assert "checkpoint prefix" in found["theirs"][0]
    assert list(unreadable) == ["job withheld"]


def test_quotas_are_those_of_the_types_that_runs_use(make: Any) -> None:
    runs = [
        make.run("a"),
        make.run("b", capacity="on-demand", instance_type="ml.g5.xlarge", request={"keep_alive": 1800}),
        make.run("c", instance_type="ml.g5.xlarge or ml.g4dn.xlarge"),
        make.run("d", instance_count=4),
        make.run("e", backend="ec2", instance_type="g5.xlarge"),
    ]
    assert wanted_quotas(runs) == {
        ("ml.m5.xlarge", Usage.SPOT): 4,
        ("ml.g5.xlarge", Usage.ON_DEMAND): 1,
        ("ml.g5.xlarge", Usage.WARM_POOL): 1,
    }


def test_queues_need_all_the_instances_that_they_may_have(make: Any) -> None:
    queue_instances = CONNECTION.model_copy(update={"queue_instances": "ml.g5.2xlarge=20 ml.m5.xlarge=2"})
    queues = queue_instances.instances_of_queues()
    spot = {("ml.g5.2xlarge", Usage.SPOT): 20, ("ml.m5.xlarge", Usage.SPOT): 2}
    assert wanted_quotas([], queue_instances=queues) == spot
    on_demand = make.run("a", capacity="on-demand", instance_count=3, queue=QueuePlace(queue="gpu", share="a"))
    assert wanted_quotas([on_demand], queue_instances=queues) == {
        ("ml.g5.2xlarge", Usage.ON_DEMAND): 20,
        ("ml.m5.xlarge", Usage.ON_DEMAND): 3,
    }


def test_a_quota_that_is_large_enough_is_not_missing() -> None:
    quota = Quota(instance_type="ml.m5.xlarge", usage=Usage.SPOT, instances=4, code="L-1")

    def missing(needed: int) -> tuple[tuple[Quota, int], ...]:
        check = AccountCheck(findings=(), unreadable={}, quotas=(quota,), wanted={("ml.m5.xlarge", Usage.SPOT): needed})
        return check.missing_quotas

    assert (missing(4), missing(5)) == ((), ((quota, 5),))
    assert quota.request(5).endswith("--quota-code L-1 --desired-value 5")


def test_quotas_are_read_by_their_names_until_all_are_found() -> None:
    client = boto3.client(
        "service-quotas", region_name="eu-central-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    names = ["ml.m5.xlarge for spot training job usage", "ml.m5.xlarge for endpoint usage", "Longest run time"]
    pages = [names, ["ml.m5.xlarge for training job usage", "ml.m5.xlarge for training warm pool usage"]]
    with Stubber(client) as stub:
        for number, page in enumerate(pages):
            stub.add_response(
                "list_service_quotas",
                {
                    "Quotas": [{"QuotaName": name, "QuotaCode": f"L-{name[-9]}", "Value": 2.0} for name in page],
                    "NextToken": "more",
                },
                {"ServiceCode": "sagemaker"} | ({"NextToken": "more"} if number else {}),
            )
        quotas = read_quotas(client, types={"ml.m5.xlarge"})
    assert [(quota.usage, quota.instances) for quota in quotas] == [
        (Usage.SPOT, 2), (Usage.ON_DEMAND, 2), (Usage.WARM_POOL, 2),
    ]  # fmt: skip
