"""A run never has two live jobs (I1), whatever call is throttled, lost, made twice or cut short by a crash."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_fleet.training_spec import JobSource
from spotkeep_jobs.backends.job_files import SpecStore
from spotkeep_jobs.backends.secret_checks import SecretChecks
from spotkeep_jobs.deployment import Deployment
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import (
    AwsBusyError,
    AwsRefusedError,
    RequestRefusedError,
    RunNotRecordedError,
    SpotkeepJobsError,
)
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import EndReason, RunState, TimelineKind
from spotkeep_jobs.runs import launch
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.launch_completion import Launched, LaunchUnfinishedError
from spotkeep_jobs.runs.rules import LAUNCH_SETTLES
from spotkeep_jobs.runs.run_actions import RunActions
from spotkeep_jobs.settings import LauncherSettings
from tests.models.deployment import DEFAULTS, PLATFORM, completed_launch, end_run, launcher_on, spec_in
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.ec2 import TEMPLATE
from tests.models.faults import Fault, Faults, ProcessDiedError, client_error
from tests.models.file_systems import FileSystemSite
from tests.models.s3 import RefusedPuts
from tests.models.sagemaker import SageMaker, over_quota
from tests.models.secrets_manager import SecretsManager

DOCUMENT = {"name": "first", "command": "python train.py", "run": "first", "token": "token-1"}


class Account(SageMaker):
    """SageMaker and DynamoDB, the faults that their calls meet, and a launcher."""

    def __init__(self) -> None:
        self.faults = Faults()
        super().__init__(self.faults)
        self.dynamodb = InMemoryDynamoDb(self.faults)
        self.table = RunTable.of(client=self.dynamodb, table_name="runs")  # type: ignore[arg-type]
        self.launcher = self.launcher_with()
        self.runs = RunActions(self.launcher)

    def launcher_with(self, **made: Any) -> Deployment[LauncherSettings]:
        return launcher_on(self.table, self, **made)

    def launch(self, launcher: Deployment[LauncherSettings] | None = None, **fields: Any) -> Launched:
        return Launcher(launcher or self.launcher).launch(DOCUMENT | fields, default_token="request-1")

    def end_run(self, **fields: Any) -> Run:
        return end_run(self.table, self, "first", **fields)

    def has_an_ended_run(self, **fields: Any) -> None:
        self.launch(**fields)
        self.end_run()

    def before_create(self, act: Callable[[], object]) -> None:
        """Let something happen before each job is created."""
        self.faults.before_call = lambda operation: operation == "CreateTrainingJob" and act()


@pytest.fixture
def account() -> Account:
    return Account()


def problem_of(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(RequestRefusedError) as caught:
        call()
    [problem] = caught.value.problems
    return problem.field, str(problem)


# Launching


def test_a_launch_records_the_run_and_then_creates_its_job(account: Account) -> None:
    answer = account.launch(owner="ada", hyperparameters={"lr": 0.1})
    assert answer.replayed is False
    assert answer.run.job_name == "first-1"
    assert answer.run.job_id == account.jobs["first-1"].arn
    assert answer.run.checkpoint_uri == "s3://checkpoints/runs/first/checkpoints/"
    assert account.table.runs.get("first") == answer.run
    recorded = account.table.runs.attempt("first", 1)
    assert [recorded.job_request] == account.requests
    assert account.faults.calls.index("TransactWriteItems") < account.faults.calls.index("CreateTrainingJob")
    assert answer.run.request["hyperparameters"] == {"lr": "0.1"}
    assert answer.run.request["image"] == DEFAULTS.image


def test_a_run_without_an_id_is_named_after_its_token(account: Account) -> None:
    answer = Launcher(account.launcher).launch({"name": "first", "command": "x"}, default_token="request-1")
    assert answer.run.run.startswith("first-")
    assert answer.run.token == "request-1"
    again = Launcher(account.launcher).launch({"name": "first", "command": "x"}, default_token="request-1")
    assert (again.run.run, again.replayed) == (answer.run.run, True)
    other = Launcher(account.launcher).launch({"name": "first", "command": "x"}, default_token="request-2")
    assert other.run.run != answer.run.run


def test_the_same_token_with_another_document_is_refused_and_says_what_differs(account: Account) -> None:
    account.launch()
    field_name, text = problem_of(lambda: account.launch(max_run="2h", max_wait="3h"))
    assert field_name == "token"
    assert "max_run, max_wait" in text
    assert len(account.requests) == 1


def test_the_same_token_answers_the_same_after_the_deployments_defaults_changed(account: Account) -> None:
    first = account.launch()
    changed = replace(DEFAULTS, image="another/image:2", instance_type="ml.m5.2xlarge", max_run_limit_seconds=7_200)
    redeployed = account.launcher_with(defaults=changed)
    again = account.launch(redeployed)
    assert (again.replayed, again.run) == (True, first.run)
    assert problem_of(lambda: account.launch(redeployed, instance_type="ml.m5.2xlarge"))[0] == "token"
    assert len(account.requests) == 1


def test_what_the_document_and_what_aws_says_of_secrets_comes_at_once_and_at_a_resume_too(account: Account) -> None:
    aws = SecretsManager()
    aws.put("hf", "MARKER")
    named: Any = {"kms": None, "ec2": None, "key_arns": (), "training_subnet_ids": (), "region": "us-east-1"}
    names = ("hf", "gone")
    launcher = account.launcher_with(
        defaults=replace(DEFAULTS, secrets=names),
        secret_checks=SecretChecks(secrets_manager=lambda: aws, secrets=names, **named),
    )
    with pytest.raises(RequestRefusedError) as caught:
        account.launch(launcher, secrets={"A": "gone", "B": "unnamed", "C": "hf"}, environment={"C": "x"})
    assert sorted(problem.field for problem in caught.value.problems) == ["secrets.A", "secrets.B", "secrets.C"]
    assert not account.requests
    account.launch(launcher, secrets={"C": "hf"})
    account.end_run()
    aws.put("hf", "MARKER", deleted=True)
    resumed = problem_of(lambda: RunActions(launcher).resume("first", changes={"secrets": {"D": "hf"}}))
    assert resumed[0] == "secrets.D"
    assert not aws.read


LUSTRE = "fs-0123456789abcdef0"
ON_LUSTRE = {"train": {"fsx": LUSTRE, "path": "/abcdefgh/cifar10"}}


def launcher_with_file_systems(account: Account, site: FileSystemSite, **made: Any) -> Deployment[LauncherSettings]:
    network = {"subnet_ids": ("subnet-b", "subnet-a"), "security_group_ids": ("sg-ours",)}
    return account.launcher_with(
        settings={"file_systems": (LUSTRE,), **network},
        clients={"fsx": site.fsx, "efs": site.efs, "ec2": site.ec2},
        platform=replace(PLATFORM, **network),
        **{"defaults": replace(DEFAULTS, file_systems=(LUSTRE,), training_network=True), **made},
    )


def test_what_the_document_and_what_aws_says_of_file_systems_comes_at_once_and_at_a_resume_too(
    account: Account,
) -> None:
    site = FileSystemSite.made()
    site.add_lustre(LUSTRE, Lifecycle="CREATING")
    launcher = launcher_with_file_systems(account, site)
    with pytest.raises(RequestRefusedError) as caught:
        account.launch(
            launcher, channels={**ON_LUSTRE, "more": {"efs": "fs-0aaaaaaaaaaaaaaaa", "path": "/"}}, max_run=0
        )
    fields = sorted(problem.field for problem in caught.value.problems)
    assert fields == ["channels.more.efs", "channels.train.fsx", "max_run"]
    assert not account.requests
    account.launch(launcher)
    account.end_run()
    resumed = problem_of(lambda: RunActions(launcher).resume("first", changes={"channels": ON_LUSTRE}))
    assert resumed[0] == "channels.train.fsx"


def test_a_job_gets_the_subnets_from_which_its_file_systems_are_reached(account: Account) -> None:
    site = FileSystemSite.made()
    site.add_lustre(LUSTRE)
    launcher = launcher_with_file_systems(account, site)
    account.launch(launcher)
    account.end_run()
    RunActions(launcher).resume("first", changes={"channels": ON_LUSTRE})
    everywhere, near = (request["VpcConfig"]["Subnets"] for request in account.requests)
    assert everywhere == ["subnet-b", "subnet-a"]
    assert near == ["subnet-a"]
    (*_, mounted) = account.requests[-1]["InputDataConfig"]
    assert mounted["DataSource"]["FileSystemDataSource"]["FileSystemId"] == LUSTRE


def launcher_of_fleets(account: Account, site: FileSystemSite) -> Deployment[LauncherSettings]:
    return account.launcher_with(
        settings={
            "file_systems": (LUSTRE,),
            "launch_template_id": TEMPLATE,
            "fleet_subnets": {"subnet-b": "us-east-1b", "subnet-a": "us-east-1a"},
        },
        clients={"fsx": site.fsx, "efs": site.efs, "ec2": site.ec2},
        defaults=replace(DEFAULTS, file_systems=(LUSTRE,), fleet_instance_types=("g5.xlarge",)),
    )


def test_types_and_ways_out_are_judged_in_the_zone_of_the_file_systems_alone(account: Account) -> None:
    site = FileSystemSite.made()
    site.add_lustre(LUSTRE)
    site.ec2.zones = ("us-east-1b",)
    with pytest.raises(RequestRefusedError) as caught:
        account.launch(launcher_of_fleets(account, site), backend="ec2", channels=ON_LUSTRE, max_run="1h")
    said = {problem.field: problem.problem for problem in caught.value.problems}
    assert said["instance_types"] == "is not offered in us-east-1a"
    assert [each.problem for each in caught.value.problems if "subnet-b" in each.problem] == []


@pytest.mark.parametrize("code", ["AccessDeniedException", "ThrottlingException"])
def test_a_file_system_that_aws_does_not_describe_is_an_answer_and_no_crash_of_the_launcher(
    account: Account, code: str
) -> None:
    site = FileSystemSite.made()
    site.ec2.route_tables = [
        {
            "RouteTableId": "rtb-1",
            "VpcId": "vpc-1",
            "Associations": [{"Main": True}],
            "Routes": [{"GatewayId": "igw-1"}],
        }
    ]
    for subnet in site.ec2.subnets:
        subnet["MapPublicIpOnLaunch"] = True

    def refused(**_: Any) -> Any:
        raise client_error("DescribeFileSystems", code)

    site.fsx.describe_file_systems = refused  # type: ignore[method-assign]
    launcher = launcher_of_fleets(account, site)
    with pytest.raises((RequestRefusedError, LaunchUnfinishedError)) as caught:
        account.launch(launcher, backend="ec2", channels=ON_LUSTRE, max_run="1h")
    if code == "ThrottlingException":
        assert "This call launched nothing and recorded nothing. Call again" in str(caught.value)
        return
    assert isinstance(caught.value, RequestRefusedError)
    ((field, found, problem),) = [(each.field, each.found, each.problem) for each in caught.value.problems]
    assert (field, found) == ("channels", LUSTRE)
    assert f"DescribeFileSystems ({code}" in problem
    assert account.table.runs.get("first") is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
field_names = st.sampled_from(sorted(JobRequest.model_fields))
nearly_right = st.fixed_dictionaries(
    {"name": st.sampled_from(["first", "a b"]), "command": st.sampled_from(["python train.py", ""])},
    optional={
        "capacity": st.sampled_from(["spot", "on-demand", "auto"]),
        "keep_alive": st.sampled_from([0, "10m", "2h"]),
        "max_wait": st.sampled_from(["1h", "2d"]),
        "checkpoints": st.booleans(),
    },
)


@given(document=nearly_right | json_values | st.dictionaries(field_names | st.text(), json_values))
def test_i7_any_document_launches_one_job_or_is_refused_whole(document: object) -> None:
    account = Account()
    try:
        Launcher(account.launcher).launch(document, default_token="request-1")
        refused = False
    except RequestRefusedError as error:
        refused = bool(error.problems)
    assert len(account.requests) == (not refused)
    assert bool(account.dynamodb.items) == (not refused)


def test_a_prefix_of_a_live_run_is_refused_until_that_run_has_ended(account: Account) -> None:
    prefix = account.launch().run.checkpoint_uri
    other = {"run": "other", "token": "token-2", "checkpoint_prefix": prefix}
    field_name, text = problem_of(lambda: account.launch(**other))
    assert field_name == "checkpoint_prefix"
    assert "live run first" in text
    assert account.live == ["first-1"]
    account.end_run()
    assert account.launch(**other).run.job_name == "other-1"


def test_validating_launches_nothing_and_gives_a_price_only_when_every_type_has_one(account: Account) -> None:
    several = {"capacity": "on-demand", "instance_types": ["ml.m5.xlarge", "ml.c5.xlarge"]}
    assert Launcher(account.launcher).validate(DOCUMENT).usd_per_hour == 0.23
    assert Launcher(account.launcher).validate(DOCUMENT | several).usd_per_hour is None
    assert (account.requests, account.dynamodb.items) == ([], {})


@pytest.mark.parametrize("act", ["launch", "validate"])
def test_i7_what_the_run_table_knows_is_reported_with_what_the_document_has_wrong(account: Account, act: str) -> None:
    prefix = account.launch().run.checkpoint_uri
    taken = DOCUMENT | {"run": "first", "token": "token-2"}
    other = DOCUMENT | {"run": "other", "token": "token-2", "checkpoint_prefix": prefix}
    unnamed = DOCUMENT | {"run": None, "name": "a b", "token": "token-2", "checkpoint_prefix": prefix}
    launcher = Launcher(account.launcher)
    judge = launcher.validate if act == "validate" else partial(launcher.launch, default_token="r")
    for document, fields in (
        (taken | {"checkpoint_prefix": prefix}, ["run"]),
        (taken | {"keep_alive": "10m"}, ["keep_alive", "run"]),
        (other | {"max_wait": "1h", "max_run": "2h"}, ["max_wait", "checkpoint_prefix"]),
        (unnamed, ["name", "checkpoint_prefix"]),
    ):
        with pytest.raises(RequestRefusedError) as caught:
            judge(document)
        assert [problem.field for problem in caught.value.problems] == fields
    assert len(account.requests) == 1


def test_i7_a_run_id_and_a_prefix_that_are_both_taken_are_both_reported(account: Account) -> None:
    prefix = account.launch().run.checkpoint_uri
    account.launch(run="second", token="token-2")
    with pytest.raises(RequestRefusedError) as caught:
        account.launch(run="second", token="token-3", checkpoint_prefix=prefix)
    assert [problem.field for problem in caught.value.problems] == ["run", "checkpoint_prefix"]


# What SageMaker may answer


def test_a_job_sagemaker_refuses_ends_the_run_and_frees_its_prefix(account: Account) -> None:
    account.refuses = ("ValidationException", "the image does not exist")
    field_name, text = problem_of(account.launch)
    assert field_name == "(SageMaker)"
    assert "the image does not exist" in text
    run = account.table.runs.get("first")
    assert (run.state, run.end_reason) == (RunState.FAILED, EndReason.LAUNCH_REFUSED)
    assert account.table.claims.checkpoint_lock_owner(run.checkpoint_uri) is None
    assert [notification.kind for notification in account.table.notifications.of_run("first")] == ["failed"]


def test_the_token_of_a_refused_launch_answers_the_same_refusal(account: Account) -> None:
    account.refuses = ("ResourceLimitExceeded", over_quota("ml.m5.xlarge", limit=0, used=0))
    first = problem_of(account.launch)
    account.refuses = None
    assert problem_of(account.launch) == first
    assert account.requests == []


def test_a_job_of_an_earlier_run_of_the_same_id_is_a_stranger(account: Account) -> None:
    account.launch()
    account.becomes("first-1", "Completed")
    account.dynamodb.items.clear()  # The record has expired; SageMaker keeps its jobs for ever.
    account.time.pass_by(days=100)
    assert "is not this run's" in problem_of(account.launch)[1]
    assert account.stopped == []


def test_a_quota_that_the_runs_own_lost_job_used_up_is_no_refusal(account: Account) -> None:
    account.quota = 1
    account.faults.strike(Fault.ANSWER_LOST, call=1)
    with pytest.raises(LaunchUnfinishedError):
        account.launch()
    assert account.faults.calls[1] == "CreateTrainingJob"
    answer = account.launch()
    assert answer.run.job_id == account.jobs["first-1"].arn
    assert answer.run.state is RunState.LAUNCHING


def test_a_name_that_is_taken_by_a_job_not_visible_yet_is_not_decided(account: Account) -> None:
    account.is_made_by_hand("first-1")
    account.replicas_lag = True
    with pytest.raises(LaunchUnfinishedError) as caught:
        account.launch()
    assert "Call again" in str(caught.value)


# What jobs start with


def test_nothing_is_created_before_what_a_job_starts_with_is_kept(account: Account) -> None:
    failures = [AwsBusyError(operation="CopyObject", code="SlowDown", reason="Reduce your request rate.")]

    def keep() -> None:
        assert account.requests == []
        if failures:
            raise failures.pop()

    launcher = account.launcher_with(training_bundle=SimpleNamespace(keep=keep))
    with pytest.raises(LaunchUnfinishedError, match="CopyObject"):
        account.launch(launcher)
    assert account.jobs == {}
    assert account.launch(launcher).run.job_id == account.jobs["first-1"].arn


def test_a_run_whose_bundle_can_not_be_kept_ends_and_says_so(account: Account) -> None:
    def keep() -> None:
        raise AwsRefusedError(operation="CopyObject", code="NoSuchKey", reason="what was uploaded is gone")

    assert (
        "what was uploaded is gone"
        in problem_of(lambda: account.launch(account.launcher_with(training_bundle=SimpleNamespace(keep=keep))))[1]
    )
    assert account.jobs == {}


# The training spec in S3, which is kept before anything is recorded


PUT_DENIED = (
    "User: arn:aws:sts::123456789012:assumed-role/launcher/x is not authorized to perform: s3:PutObject on resource: "
    '"arn:aws:s3:::checkpoints/specs/first/x.json" because no identity-based policy allows the s3:PutObject action'
)
KEY_DENIED = PUT_DENIED.replace("s3:PutObject", "kms:GenerateDataKey")


def launcher_with_s3(account: Account, s3: RefusedPuts) -> Deployment[LauncherSettings]:
    return account.launcher_with(specs=SpecStore(lambda: s3))  # type: ignore[arg-type,return-value]


REFUSALS = [
    ("AccessDenied", PUT_DENIED, 403, ["s3:PutObject", "spotkeep help roles", "administrator"]),
    ("AccessDenied", KEY_DENIED, 403, ["kms:GenerateDataKey", "spotkeep help roles", "administrator"]),
    ("AccessDenied", "Access Denied", 403, ["s3:PutObject", "kms:GenerateDataKey", "spotkeep help roles"]),
    ("KMS.DisabledException", "key/1 is disabled.", 400, ["key/1 is disabled", "KMS key", "enable"]),
    ("KMS.KMSInvalidStateException", "key/1 is pending deletion.", 400, ["pending deletion", "cancel its deletion"]),
    ("NoSuchBucket", "The specified bucket does not exist", 404, ["bucket does not exist", "cdk deploy"]),
]
BUSY = [
    ("SlowDown", "Please reduce your request rate for operations involving AWS KMS.", 503),
    ("InternalError", "We encountered an internal error. Please try again.", 500),
]


@pytest.mark.parametrize(("code", "message", "status", "says"), REFUSALS)
def test_i7_a_spec_that_s3_refuses_launches_nothing_records_nothing_and_says_what_to_do(
    account: Account, code: str, message: str, status: int, says: list[str]
) -> None:
    s3 = RefusedPuts(code, message, status)
    launcher = launcher_with_s3(account, s3)
    field_name, text = problem_of(lambda: account.launch(launcher))
    assert field_name == "(S3)"
    for words in (code, "s3://checkpoints/specs/first/", "Nothing was launched", "nothing is recorded", *says):
        assert words in text
    assert "controller" not in text
    assert (account.jobs, account.dynamodb.items) == ({}, {})
    s3.error = ()
    assert account.launch(launcher).replayed is False
    assert list(account.jobs) == ["first-1"]


@pytest.mark.parametrize(("code", "message", "status"), BUSY)
def test_a_spec_that_s3_is_too_busy_to_take_is_kept_by_the_same_call_again(
    account: Account, code: str, message: str, status: int
) -> None:
    s3 = RefusedPuts(code, message, status)
    launcher = launcher_with_s3(account, s3)
    with pytest.raises(LaunchUnfinishedError) as caught:
        account.launch(launcher)
    text = str(caught.value)
    for words in (message, "launched nothing", "recorded nothing", "same document and token token-1"):
        assert words in text
    assert "controller" not in text
    assert (account.jobs, account.dynamodb.items) == ({}, {})
    s3.error = ()
    assert account.launch(launcher).replayed is False


@pytest.mark.parametrize("error", [("AccessDenied", PUT_DENIED, 403), ("SlowDown", "Reduce your request rate.", 503)])
def test_the_token_of_a_launched_run_answers_while_s3_takes_no_spec(
    account: Account, error: tuple[str, str, int]
) -> None:
    first = account.launch()
    again = account.launch(launcher_with_s3(account, RefusedPuts(*error)))
    assert (again.replayed, again.run) == (True, first.run)


def test_a_resume_whose_spec_s3_refuses_leaves_the_run_as_it_was(account: Account) -> None:
    account.has_an_ended_run()
    before = account.table.runs.get("first")
    s3 = RefusedPuts("AccessDenied", PUT_DENIED, 403)
    runs = RunActions(launcher_with_s3(account, s3))
    field_name, text = problem_of(lambda: runs.resume("first", changes={"hyperparameters": {"lr": 1}}))
    assert (field_name, "nothing is recorded" in text, "s3:PutObject" in text) == ("(S3)", True, True)
    s3.error = BUSY[0]
    with pytest.raises(LaunchUnfinishedError, match=r"No attempt was begun.*\. Call again$") as caught:
        runs.resume("first")
    assert "controller" not in str(caught.value)
    assert account.table.runs.get("first") == before
    s3.error = ()
    assert runs.resume("first").run.attempt == 2


def test_a_resume_that_may_not_ask_for_the_last_job_begins_nothing_and_names_the_permission(account: Account) -> None:
    account.has_an_ended_run()
    denied = AwsRefusedError(operation="DescribeTrainingJob", code="AccessDeniedException", reason="may not describe")
    jobs = SimpleNamespace(observe=Mock(side_effect=denied))
    launcher = account.launcher_with(backend_of=lambda _attempt: jobs)
    field_name, text = problem_of(lambda: RunActions(launcher).resume("first"))
    assert field_name == "run"
    assert "DescribeTrainingJob" in text
    assert "spotkeep help roles" in text
    assert account.table.runs.get("first").attempt == 1  # type: ignore[union-attr]


def test_a_launch_whose_record_meets_others_at_every_try_is_not_recorded_and_says_so(account: Account) -> None:
    reasons: Any = [{"Code": "TransactionConflict"}]
    busy = client_error("TransactWriteItems", "TransactionCanceledException", CancellationReasons=reasons)
    account.dynamodb.transact_write_items = Mock(side_effect=busy)  # type: ignore[method-assign]
    with pytest.raises(LaunchUnfinishedError, match=r"recorded nothing\. Call again with the same document") as caught:
        account.launch()
    assert "controller" not in str(caught.value)


def test_a_launch_that_is_recorded_says_that_the_controller_completes_it(account: Account) -> None:
    account.refuses = ("ThrottlingException", "slow down")
    with pytest.raises(LaunchUnfinishedError, match=r"is recorded.*token token-1, or wait for the controller"):
        account.launch()
    assert account.table.runs.get("first") is not None


# A fault of every call, before and after its effect


def test_the_faults_below_strike_every_call(account: Account) -> None:
    def calls_of(work: Callable[[], object]) -> int:
        account.faults.strike(None)
        work()
        return len(account.faults.calls)

    assert calls_of(account.launch) == 3
    assert calls_of(lambda: account.runs.stop("first")) == 4
    account.end_run()
    assert calls_of(lambda: account.runs.resume("first")) == 6


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("call", range(3))
def test_a_fault_of_any_call_of_a_launch_leaves_one_job_and_one_answer(
    account: Account, call: int, fault: Fault
) -> None:
    account.faults.strike(fault, call=call)
    with pytest.raises((SpotkeepJobsError, ClientError, ProcessDiedError)):
        account.launch()
    answer = account.launch()
    assert account.live == ["first-1"]
    assert len(account.requests) == 1
    assert answer.run.job_id == account.jobs["first-1"].arn
    assert account.table.runs.get("first") == answer.run
    assert account.launch().run == answer.run


@pytest.mark.parametrize("call", range(3))
def test_the_reconciler_completes_what_a_dead_launcher_left(account: Account, call: int) -> None:
    account.faults.strike(Fault.DEATH, call=call)
    with pytest.raises(ProcessDiedError):
        account.launch()
    recorded = list(account.table.runs.in_flight())
    assert recorded == ([] if call == 0 else ["first"])
    for run in recorded:
        completed = completed_launch(run, table=account.table, sagemaker=account)
        assert completed.job_id == account.jobs["first-1"].arn
    assert account.live == (["first-1"] if recorded else [])
    assert len(account.requests) == len(recorded)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.ANSWER_LOST])
@pytest.mark.parametrize("call", range(6))
def test_a_fault_of_any_call_of_a_resume_leaves_one_live_job(account: Account, call: int, fault: Fault) -> None:
    account.has_an_ended_run()
    account.faults.strike(fault, call=call)
    with pytest.raises((SpotkeepJobsError, ClientError)):
        account.runs.resume("first")
    try:
        account.runs.resume("first")
    except RequestRefusedError as error:
        # The first call had done it all but say so.
        assert "attempt 2 is LAUNCHING" in str(error)  # noqa: PT017
    assert account.live == ["first-2"]
    assert len(account.requests) == 2


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.ANSWER_LOST])
@pytest.mark.parametrize("call", range(4))
def test_a_fault_of_any_call_of_a_stop_still_stops_the_job(account: Account, call: int, fault: Fault) -> None:
    account.launch()
    account.faults.strike(fault, call=call)
    with pytest.raises((SpotkeepJobsError, ClientError)):
        account.runs.stop("first")
    assert account.runs.stop("first").state is RunState.STOPPING
    assert account.jobs["first-1"].status == "Stopping"
    assert account.table.runs.get("first").state is RunState.STOPPING


def test_a_transaction_that_keeps_meeting_others_is_said_to_be_unfinished(account: Account, make: Any) -> None:
    conflict = make.error(
        "TransactWriteItems", "TransactionCanceledException", CancellationReasons=[{"Code": "TransactionConflict"}]
    )

    def meet_another(operation: str) -> None:
        if operation == "TransactWriteItems":
            raise conflict

    account.dynamodb.before_call = meet_another
    with pytest.raises(LaunchUnfinishedError):
        account.launch()
    account.dynamodb.before_call = lambda _operation: None
    account.launch()
    assert account.live == ["first-1"]


# Twice at once


def test_a_launcher_called_at_once_creates_one_job(account: Account) -> None:
    callers = 8
    together = threading.Barrier(callers)
    account.before_create(lambda: together.wait(timeout=30))
    with ThreadPoolExecutor(callers) as pool:
        answers = list(pool.map(lambda _: account.launch(), range(callers)))
    assert account.live == ["first-1"]
    assert len(account.requests) == 1
    assert sum(not answer.replayed for answer in answers) == 1
    assert {answer.run.job_id for answer in answers} == {account.jobs["first-1"].arn}


def test_a_resume_called_at_once_creates_one_job(account: Account) -> None:
    account.has_an_ended_run()

    def resume(_: int) -> str:
        try:
            return account.runs.resume("first").run.job_name
        except RequestRefusedError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(resume, range(4)))
    assert account.live == ["first-2"]
    assert len(account.requests) == 2
    assert all(answer == "first-2" or "is not over" in answer for answer in answers)


# Resuming


def test_a_resume_begins_the_next_attempt_on_the_same_checkpoints(account: Account) -> None:
    first = account.launch(hyperparameters={"lr": 0.1}).run
    account.end_run()
    answer = account.runs.resume("first")
    assert (answer.run.attempt, answer.run.job_name, answer.replayed) == (2, "first-2", False)
    assert answer.run.checkpoint_uri == first.checkpoint_uri
    before, after = account.requests
    assert after["CheckpointConfig"] == before["CheckpointConfig"]
    assert after["HyperParameters"] == before["HyperParameters"]
    assert after["Environment"]["SPOTKEEP_ATTEMPT"] == "2"
    assert account.table.claims.checkpoint_lock_owner(first.checkpoint_uri) == "first"


def test_a_resume_keeps_what_was_decided_when_the_deployments_defaults_change(account: Account) -> None:
    account.has_an_ended_run()
    changed = account.launcher_with(defaults=DeploymentDefaults(image="new", instance_type="ml.c5.large"))
    assert RunActions(changed).resume("first").run.place.instance_type == "ml.m5.xlarge"
    images = {request["AlgorithmSpecification"]["TrainingImage"] for request in account.requests}
    assert images == {DEFAULTS.image}


SOURCE = {"uri": "s3://checkpoints/sources/first/fixed.tar.gz", "sha256": "ab" * 32}


def test_a_resume_with_changes_goes_on_with_them_from_the_same_checkpoints(account: Account) -> None:
    account.has_an_ended_run(hyperparameters={"lr": 0.1}, notify=["failed"])
    changes = {"source": SOURCE, "hyperparameters": {"lr": 0.01}, "max_run": "2h", "notify": ["completed"]}
    resumed = account.runs.resume("first", changes=changes).run
    before, after = account.requests
    assert after["CheckpointConfig"] == before["CheckpointConfig"]
    assert after["HyperParameters"] == {"lr": "0.01"}
    assert spec_in(after).source == JobSource(**SOURCE)
    assert spec_in(before).source is None
    assert after["StoppingCondition"]["MaxRuntimeInSeconds"] == 7_200
    assert (resumed.request["source"], resumed.request["run"], resumed.token) == (SOURCE, "first", "token-1")
    assert [kind.value for kind in resumed.notify] == ["completed"]
    [entry] = [each for each in account.table.runs.timeline("first") if each.kind is TimelineKind.REQUEST_CHANGED]
    assert entry.text == "Goes on with changes in hyperparameters, max_run, max_wait, notify, source (abababababab)"


def test_what_the_deployment_filled_in_follows_what_has_changed(account: Account) -> None:
    account.has_an_ended_run()
    by_types = account.launcher_with(defaults=replace(DEFAULTS, image=None))
    changes = {"instance_type": "ml.g5.xlarge", "image": DEFAULTS.image}
    resumed = RunActions(by_types).resume("first", changes=changes).run
    assert (resumed.place.instance_type, resumed.request["instance_types"]) == ("ml.g5.xlarge", ["ml.g5.xlarge"])
    account.end_run()
    longer = account.runs.resume("first", changes={"max_run": "30h"}).run
    assert longer.request["max_wait"] == (30 + 24) * 3_600


def test_a_changed_request_is_judged_as_a_whole_and_nothing_is_written(account: Account) -> None:
    account.has_an_ended_run()
    before = account.table.runs.get("first")
    with pytest.raises(RequestRefusedError) as refused:
        account.runs.resume(
            "first", changes={"team": "vision", "checkpoint_prefix": "s3://x/y/", "max_run": "29d", "sorce": "x"}
        )
    fields = [problem.field for problem in refused.value.problems]
    assert sorted(set(fields)) >= ["checkpoint_prefix", "max_run", "sorce", "team"]
    assert "did you mean `source`" in str(refused.value).lower()
    assert account.table.runs.get("first") == before
    assert len(account.requests) == 1


def test_what_the_run_is_and_whose_stays(account: Account) -> None:
    recorded = account.launch().run.request
    account.end_run()
    stays = sorted(set(JobRequest.model_fields) & set(launch._STAYS))
    with pytest.raises(RequestRefusedError) as refused:
        account.runs.resume("first", changes={field: recorded.get(field) for field in stays})
    found = {each.field for each in refused.value.problems if "is not changed by a resume" in each.problem}
    assert sorted(found) == stays


def test_a_repeated_resume_with_the_same_changes_answers_the_same_and_with_others_is_refused(account: Account) -> None:
    account.has_an_ended_run()
    changes = {"command": "python fixed.py"}
    account.refuses = ("ThrottlingException", "slow down")
    with pytest.raises(LaunchUnfinishedError):
        account.runs.resume("first", changes=changes)
    account.refuses = None
    fields = {problem_of(lambda: account.runs.resume("first", changes={"command": "python other.py"}))[0]}
    assert fields == {"run"}
    again = account.runs.resume("first", changes=changes)
    assert (again.replayed, again.run.attempt, again.run.request["command"]) == (True, 2, ["python", "fixed.py"])
    assert account.live == ["first-2"]


def test_a_live_run_is_not_resumed(account: Account) -> None:
    account.launch()
    field_name, text = problem_of(lambda: account.runs.resume("first"))
    assert field_name == "run"
    assert "spotkeep stop first" in text
    assert len(account.requests) == 1


def test_a_run_whose_job_lives_is_not_resumed_whatever_the_record_says(account: Account) -> None:
    account.has_an_ended_run()
    for status in ("InProgress", "Stopping"):
        account.becomes("first-1", status)
        assert "SageMaker still has its training job" in problem_of(lambda: account.runs.resume("first"))[1]
    assert len(account.requests) == 1


@pytest.mark.parametrize("changes", [{"pause_at_step": 1001}, {"pause_at_step": None}])
def test_a_paused_run_goes_on_to_a_later_step_or_to_the_end(account: Account, changes: dict[str, Any]) -> None:
    account.launch(pause_at_step=1000)
    account.end_run(paused_at_step=1000)
    resumed = account.runs.resume("first", changes=changes).run
    assert (resumed.attempt, resumed.end_reason, resumed.paused_at_step) == (2, None, None)
    before, after = (spec_in(request).pause_at_step for request in account.requests)
    assert (before, after) == (1000, changes["pause_at_step"])
    assert resumed.request.get("pause_at_step") == changes["pause_at_step"]


@pytest.mark.parametrize("changes", [{}, {"pause_at_step": 1200}])
def test_a_paused_run_that_would_pause_again_at_once_is_not_resumed(account: Account, changes: dict[str, Any]) -> None:
    account.launch(pause_at_step=1000)
    account.end_run(paused_at_step=1200)
    field, text = problem_of(lambda: account.runs.resume("first", changes=changes))
    assert field == "pause_at_step"
    assert "spotkeep resume first --set pause_at_step=2400" in text
    assert "spotkeep resume first --set pause_at_step=\n" in f"{text}\n"
    assert len(account.requests) == 1


def test_a_completed_run_is_not_resumed(account: Account) -> None:
    account.launch()
    account.end_run(state=RunState.COMPLETED)
    assert "checkpoint_prefix: s3://checkpoints/runs/first/" in problem_of(lambda: account.runs.resume("first"))[1]


def test_a_run_that_was_refused_by_sagemaker_can_be_resumed_once_the_reason_is_gone(account: Account) -> None:
    account.refuses = ("ResourceLimitExceeded", over_quota("ml.m5.xlarge", limit=0, used=0))
    problem_of(account.launch)
    account.refuses = None
    assert account.runs.resume("first").run.job_name == "first-2"
    assert account.live == ["first-2"]


def test_a_prefix_that_another_run_took_meanwhile_is_not_resumed_on(account: Account) -> None:
    prefix = account.launch().run.checkpoint_uri
    account.end_run()
    account.launch(run="other", token="token-2", checkpoint_prefix=prefix)
    assert "live run other" in problem_of(lambda: account.runs.resume("first"))[1]
    assert account.live == ["other-1"]


@pytest.mark.parametrize("act", ["resume", "stop", "describe"])
def test_a_run_that_does_not_exist_is_a_problem_with_a_hint(account: Account, act: str) -> None:
    assert "spotkeep ps" in problem_of(lambda: getattr(account.runs, act)("no-run"))[1]


def test_completing_a_run_that_does_not_exist_is_an_error(account: Account) -> None:
    with pytest.raises(RunNotRecordedError):
        completed_launch("no-run", table=account.table, sagemaker=account)


# Stopping


def test_an_ended_run_is_left_as_it_is_by_a_stop(account: Account) -> None:
    account.launch()
    run = account.end_run(state=RunState.COMPLETED)
    assert account.runs.stop("first") == run
    assert account.stopped == []


def test_a_stop_that_overtakes_the_create_stops_the_job_that_appears(account: Account) -> None:
    stops = itertools.count()

    def stop_meanwhile() -> None:
        if next(stops) == 0:
            account.runs.stop("first")

    account.before_create(stop_meanwhile)
    account.launch()
    assert account.jobs["first-1"].status == "Stopping"
    assert account.table.runs.get("first").state is RunState.STOPPING


def test_a_stop_of_a_run_whose_launcher_died_ends_it_once_no_launcher_can_be_alive(account: Account) -> None:
    account.faults.strike(Fault.DEATH, call=1)
    with pytest.raises(ProcessDiedError):
        account.launch()
    assert account.runs.stop("first").state is RunState.STOPPING
    account.time.time += LAUNCH_SETTLES
    run = completed_launch("first", table=account.table, sagemaker=account)
    assert (run.state, run.end_reason) == (RunState.STOPPED, EndReason.STOPPED_BY_USER)
    assert account.jobs == {}
    assert account.table.claims.checkpoint_lock_owner(run.checkpoint_uri) is None
    assert [notification.kind for notification in account.table.notifications.of_run("first")] == ["stopped"]


def test_a_stop_finds_the_job_of_a_launcher_that_died_before_recording_it(account: Account) -> None:
    account.faults.strike(Fault.DEATH, call=2)
    with pytest.raises(ProcessDiedError):
        account.launch()
    assert account.live == ["first-1"]
    account.runs.stop("first")
    assert account.jobs["first-1"].status == "Stopping"


def test_a_job_that_a_user_deleted_is_no_obstacle_to_a_stop(account: Account) -> None:
    account.launch()
    account.jobs.clear()
    assert account.runs.stop("first").state is RunState.STOPPING
