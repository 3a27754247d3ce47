"""One user acts as another: names another owner or team, stops, resumes or takes over what is another's.

Who attacks: a user with the users' policy of a deployment, with the command line, `aws lambda invoke` or requests of
their own. What they would gain: an end to another's training, another's checkpoints to write into, another's bill,
another team's role and data, and a record that says it was another.

With `verify_callers` all of it is refused. Without, the deployment is one domain of trust: nothing is refused, and what
is recorded of a caller says that it proves nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from launcher import handler as entry
from launcher.handler import MOST_BODY_BYTES
from spotkeep_jobs.record.fields import Caller
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.callers import CallerRules
from tests.models.deployment import DEFAULTS, PLATFORM, launcher_on
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.functions import Context
from tests.models.sagemaker import SageMaker

from .policies import Policies

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SESSIONS = "arn:aws:sts::111122223333:assumed-role/AWSReservedSSO"
ADA, GRACE = f"{SESSIONS}_Vision_0a1b/ada@example.com", f"{SESSIONS}_Speech_2c3d/grace@example.com"
ALAN = f"{SESSIONS}_Vision_0a1b/alan@example.com"
OPERATOR = f"{SESSIONS}_Platform_4e5f/op@example.com"
RULES = CallerRules(
    team_members={
        "vision": ("arn:aws:sts::*:assumed-role/AWSReservedSSO_Vision_*/*",),
        "speech": ("arn:aws:sts::*:assumed-role/AWSReservedSSO_Speech_*/*",),
    },
    administrators=("arn:aws:sts::111122223333:assumed-role/AWSReservedSSO_Platform_*/*",),
)
DOCUMENT = {"name": "first", "run": "first", "command": "python train.py"}
ACTIONS = ("stop", "resume", "replay-notifications", "shell", "stop-pool", "extend-pool")


class Deployment:
    """A launcher and its table, called as AWS calls it."""

    def __init__(self, rules: CallerRules | None) -> None:
        self.table = RunTable.of(client=InMemoryDynamoDb(), table_name="runs", retention_days=30)  # type: ignore[arg-type]
        self.sagemaker = SageMaker()
        self.launcher = launcher_on(
            self.table,
            self.sagemaker,
            platform=replace(PLATFORM, team_role_arns={"vision": "arn:aws:iam::111122223333:role/vision"}),
            defaults=replace(DEFAULTS, teams=("speech", "vision")),
            prices={},
            callers=rules,
        )

    def call(self, payload: object, *, caller: str | None) -> dict[str, Any]:
        """A request to the function's URL, as AWS hands it over."""
        answer = self.invoke(url_event(payload, caller=caller))
        assert answer["headers"]["content-type"] == "application/json"
        body: dict[str, Any] = json.loads(answer["body"])
        assert answer["statusCode"] == (200 if body["ok"] else 400)
        return body

    def invoke(self, event: object) -> dict[str, Any]:
        """A direct invocation."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(entry, "current_deployment", lambda: self.launcher)
            answer: dict[str, Any] = json.loads(
                json.dumps(entry.handler(event, Context(aws_request_id=str(uuid.uuid4()))))
            )
        return answer

    def run_item(self, run: str) -> Run:
        run_item = self.table.runs.get(run)
        assert run_item is not None
        return run_item


def url_event(payload: object, *, caller: str | None, method: str = "POST") -> dict[str, Any]:
    """What AWS makes of a request to a function URL with AuthType AWS_IAM."""
    authorizer = {} if caller is None else {"authorizer": {"iam": {"userArn": caller, "accountId": "111122223333"}}}
    return {
        "version": "2.0",
        "rawPath": "/",
        "headers": {},
        "requestContext": {"http": {"method": method, "path": "/"}, "authentication": None, **authorizer},
        "body": json.dumps(payload),
        "isBase64Encoded": False,
    }


def refused_fields(answer: Mapping[str, Any]) -> list[str]:
    assert (answer["ok"], answer["error"]) == (False, "refused"), answer
    return [problem["field"] for problem in answer["problems"]]


@pytest.fixture
def verifying() -> Deployment:
    return Deployment(RULES)


@pytest.fixture
def trusting() -> Deployment:
    return Deployment(None)


class TestWhatACallerNames:
    def test_a_run_is_its_callers_and_says_so(self, verifying: Deployment) -> None:
        assert verifying.call(DOCUMENT, caller=ADA)["ok"]
        run_item = verifying.run_item("first")
        assert run_item.owner == "ada@example.com"
        assert run_item.launched_by == Caller(arn=ADA, name="ada@example.com", verified=True)

    def test_another_owner_is_refused_with_all_that_is_wrong(self, verifying: Deployment) -> None:
        document = {"name": "first", "run": "first", "owner": "grace@example.com", "team": "speech", "max_run": "-1"}
        assert set(refused_fields(verifying.call(document, caller=ADA))) == {"owner", "team", "command", "max_run"}
        asked = {"action": "validate", **DOCUMENT, "owner": "grace@example.com"}
        assert refused_fields(verifying.call(asked, caller=ADA)) == ["owner"]
        assert verifying.table.runs.get("first") is None

    def test_a_team_is_named_by_its_members_alone(self, verifying: Deployment) -> None:
        assert refused_fields(verifying.call({**DOCUMENT, "team": "vision"}, caller=GRACE)) == ["team"]
        assert verifying.call({**DOCUMENT, "team": "vision"}, caller=ADA)["ok"]

    def test_an_administrator_launches_for_others(self, verifying: Deployment) -> None:
        document = {**DOCUMENT, "owner": "ada@example.com", "team": "vision"}
        assert verifying.call(document, caller=OPERATOR)["ok"]
        run_item = verifying.run_item("first")
        assert (run_item.owner, run_item.launched_by and run_item.launched_by.name) == (
            "ada@example.com",
            "op@example.com",
        )

    def test_anothers_token_answers_nothing_and_launches_nothing(self, verifying: Deployment) -> None:
        assert verifying.call({**DOCUMENT, "token": "t"}, caller=ADA)["ok"]
        assert refused_fields(verifying.call({**DOCUMENT, "token": "t"}, caller=GRACE)) == ["token"]
        copied = {**DOCUMENT, "token": "t", "owner": "ada@example.com"}
        assert refused_fields(verifying.call(copied, caller=GRACE)) == ["owner"]


class TestWhatIsAnothers:
    @pytest.mark.parametrize("action", ACTIONS)
    def test_a_run_is_not_acted_on(self, verifying: Deployment, action: str) -> None:
        assert verifying.call(DOCUMENT, caller=ADA)["ok"]
        asked = {"action": action, "run": "first"} | ({"for": "10m"} if action == "extend-pool" else {})
        answer = verifying.call(asked, caller=GRACE)
        assert refused_fields(answer) == ["run"]
        assert "belongs to ada@example.com" in answer["problems"][0]["problem"]
        assert verifying.sagemaker.stopped == []
        assert verifying.run_item("first").asked_to_end is None
        assert refused_fields(verifying.call({**asked, "run": "no-run"}, caller=GRACE)) == ["run"]

    def test_its_team_and_administrators_act_on_it(self, verifying: Deployment) -> None:
        assert verifying.call({**DOCUMENT, "team": "vision"}, caller=ADA)["ok"]
        assert verifying.call({"action": "stop", "run": "first"}, caller=ALAN)["ok"]
        assert verifying.call({**DOCUMENT, "run": "second"}, caller=ADA)["ok"]
        assert refused_fields(verifying.call({"action": "stop", "run": "second"}, caller=ALAN)) == ["run"]
        assert verifying.call({"action": "stop", "run": "second"}, caller=OPERATOR)["ok"]

    def test_its_owner_acts_on_it_with_another_role(self, verifying: Deployment) -> None:
        """With IAM Identity Center the sessions of all of a person's permission sets bear the same name."""
        assert verifying.call(DOCUMENT, caller=ADA)["ok"]
        another = f"{SESSIONS}_Reader_6a7b/ada@example.com"
        assert verifying.call({"action": "stop", "run": "first"}, caller=another)["ok"]

    def test_checkpoints_are_not_taken_over(self, verifying: Deployment) -> None:
        verifying.sagemaker.refuses = ("ValidationException", "no such image")
        assert refused_fields(verifying.call(DOCUMENT, caller=ADA)) == ["(SageMaker)"]  # so the run is over
        verifying.sagemaker.refuses = None
        document = {"name": "mine", "command": "python train.py"}
        for prefix in ("s3://checkpoints/runs/first/checkpoints/", "s3://checkpoints/runs/forgotten/checkpoints/"):
            answer = verifying.call({**document, "checkpoint_prefix": prefix}, caller=GRACE)
            assert refused_fields(answer) == ["checkpoint_prefix"]
        elsewhere = "s3://checkpoints/teams/vision/runs/first/checkpoints/"
        assert "checkpoint_prefix" in refused_fields(
            verifying.call({**document, "checkpoint_prefix": elsewhere}, caller=ADA)
        )
        document["checkpoint_prefix"] = "s3://checkpoints/runs/first/checkpoints/"
        assert verifying.call(document, caller=ADA)["ok"]

    def test_everybody_reads(self, verifying: Deployment) -> None:
        assert verifying.call(DOCUMENT, caller=ADA)["ok"]
        assert verifying.call({"action": "describe", "run": "first"}, caller=GRACE)["record"]["owner"]
        assert verifying.call({"action": "pools"}, caller=GRACE)["ok"]


class TestWhoCalls:
    @pytest.mark.parametrize(
        "payload", [DOCUMENT, {"action": "stop", "run": "first"}, {"action": "describe", "run": "first"}, [], None]
    )
    def test_an_invocation_that_names_no_caller_is_refused(self, verifying: Deployment, payload: object) -> None:
        assert refused_fields(verifying.invoke(payload)) == ["(caller)"]
        assert refused_fields(verifying.call(payload, caller=None)) == ["(caller)"]

    def test_no_user_writes_the_event_by_hand(self, policies_with_everything: Policies) -> None:
        """The event of a direct invocation may say anything; the users' policy lets no user make one."""
        users, launcher = "UsersPolicy", policies_with_everything.arn("AWS::Lambda::Function", named="Launcher")

        def allowed(action: str, **context: str) -> bool:
            keys = {f"lambda:{name}": value for name, value in context.items()}
            return policies_with_everything.allows(users, action, launcher, keys)

        assert allowed("lambda:InvokeFunction", InvokedViaFunctionUrl="true")
        assert allowed("lambda:InvokeFunctionUrl", FunctionUrlAuthType="AWS_IAM")
        assert not allowed("lambda:InvokeFunction", InvokedViaFunctionUrl="false")
        assert not allowed("lambda:InvokeFunction")
        assert not allowed("lambda:InvokeFunctionUrl", FunctionUrlAuthType="NONE")
        for action in ("UpdateFunctionUrlConfig", "UpdateFunctionCode", "AddPermission", "InvokeAsync"):
            assert not allowed(f"lambda:{action}", InvokedViaFunctionUrl="true", FunctionUrlAuthType="AWS_IAM")

    def test_one_domain_of_trust_keeps_direct_invocations(self, policies: Policies) -> None:
        launcher = policies.arn("AWS::Lambda::Function", named="Launcher")
        assert policies.allows("UsersPolicy", "lambda:InvokeFunction", launcher)

    @pytest.mark.parametrize("setting", ["policies", "policies_with_everything"])
    def test_no_other_account_and_no_web_page_gets_in(self, setting: str, request: pytest.FixtureRequest) -> None:
        """A principal of another account needs a resource policy as well, and a page needs CORS: there is neither."""
        templates = request.getfixturevalue(setting).templates
        launcher = next(name for name in templates.resources("AWS::Lambda::Function") if name.startswith("Launcher"))
        url = templates.only("AWS::Lambda::Url", named="Launcher")
        assert (url["AuthType"], "Cors" in url, "Qualifier" in url) == ("AWS_IAM", False, False)
        for permission in templates.resources("AWS::Lambda::Permission").values():
            assert launcher not in json.dumps(permission)

    @pytest.mark.parametrize(
        "arn",
        [
            None,
            ["arn"],
            "arn:aws:sts::111122223333:assumed-role/AWSReservedSSO_Platform_4e5f",
            "arn:aws:sts::111122223333:assumed-role/Any/x\narn:aws:sts::111122223333:assumed-role/Platform/op",
            "arn:aws:sts::111122223333:assumed-role/Any/\x1b]52;c;eA==\x07",
            "arn:aws:sts::111122223333:assumed-role/Any/\uff41\uff44\uff41",
            "arn:aws:sts::111122223333:assumed-role/a/b/c",
            "arn:aws:sts::*:assumed-role/*/*",
            "arn:aws:iam::111122223333:role/Vision",
            f"arn:aws:iam::111122223333:user/{'a/' * 400}ada",
        ],
    )
    def test_what_is_no_principal_is_no_caller(self, verifying: Deployment, trusting: Deployment, arn: Any) -> None:
        assert refused_fields(verifying.call(DOCUMENT, caller=arn)) == ["(caller)"]
        assert trusting.call(DOCUMENT, caller=arn)["ok"]
        assert trusting.run_item("first").launched_by is None

    @pytest.mark.parametrize(
        ("arn", "name"),
        [
            (ADA, "ada@example.com"),
            ("arn:aws:iam::111122223333:user/ada", "ada"),
            ("arn:aws:iam::111122223333:user/division/lab/ada", "ada"),
            ("arn:aws:iam::111122223333:root", "root"),
            ("arn:aws:sts::111122223333:federated-user/ada", "ada"),
            ("arn:aws-cn:sts::111122223333:assumed-role/Vision/i-0123456789abcdef0", "i-0123456789abcdef0"),
        ],
    )
    def test_a_principal_has_the_name_that_aws_gives_it(self, arn: str, name: str) -> None:
        assert Caller.of(arn, verified=True) == Caller(arn=arn, name=name, verified=True)

    @pytest.mark.parametrize(
        "arn",
        [
            "arn:aws:iam::111122223333:user/AWSReservedSSO_Platform_4e5f/op@example.com",
            "arn:aws:sts::444455556666:assumed-role/AWSReservedSSO_Platform_4e5f/op@example.com",
            "arn:aws:sts::111122223333:assumed-role/xAWSReservedSSO_Platform_4e5f/op@example.com",
        ],
    )
    def test_a_pattern_matches_no_more_than_it_says(self, verifying: Deployment, arn: str) -> None:
        assert verifying.call(DOCUMENT, caller=ADA)["ok"]
        assert refused_fields(verifying.call({"action": "stop", "run": "first"}, caller=arn)) == ["run"]

    def test_a_star_stays_within_its_part_of_an_arn(self) -> None:
        caller = Caller.of("arn:aws:iam::111122223333:user/division/ada", verified=True)
        assert caller is not None
        for pattern, matches in (("user/*", False), ("user/*/ada", True), ("user/division/a?a", False)):
            rules = CallerRules(team_members={}, administrators=(f"arn:aws:iam::*:{pattern}",))
            assert rules.administers(caller) is matches

    def test_a_name_that_no_tag_can_hold_is_refused_as_an_owner(self, verifying: Deployment) -> None:
        arn = "arn:aws:sts::111122223333:assumed-role/AWSReservedSSO_Vision_0a1b/a,b"
        assert refused_fields(verifying.call(DOCUMENT, caller=arn)) == ["owner"]


class TestOneDomainOfTrust:
    def test_who_calls_is_recorded_as_what_anybody_can_write(self, trusting: Deployment) -> None:
        forged = trusting.invoke(url_event(DOCUMENT, caller=GRACE))
        assert forged["statusCode"] == 200
        run_item = trusting.run_item("first")
        assert run_item.launched_by == Caller(arn=GRACE, name="grace@example.com", verified=False)
        assert run_item.owner is None

    def test_everybody_acts_on_everything(self, trusting: Deployment) -> None:
        assert trusting.invoke({**DOCUMENT, "owner": "grace@example.com", "team": "speech"})["ok"]
        assert trusting.run_item("first").launched_by is None
        assert trusting.call({"action": "stop", "run": "first"}, caller=ADA)["ok"]


class TestWhatIsNoDocument:
    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"body": None}, "(body)"),
            ({"body": "9" * 5_000}, "(body)"),
            ({"body": "[" * 100_000}, "(body)"),
            ({"body": "!", "isBase64Encoded": True}, "(body)"),
            ({"body": "/w==", "isBase64Encoded": True}, "(body)"),
            ({"body": " " * (MOST_BODY_BYTES + 1)}, "(body)"),
            ({"requestContext": {"http": {"method": "GET"}}}, "(method)"),
        ],
    )
    def test_a_body_that_cannot_be_read_is_refused(
        self, trusting: Deployment, changes: dict[str, Any], field: str
    ) -> None:
        answer = trusting.invoke({**url_event(DOCUMENT, caller=ADA), **changes})
        assert answer["statusCode"] == 400
        assert refused_fields(json.loads(answer["body"])) == [field]
