"""A deployment on the models of AWS whose calls are kept with its items, so that both can be read by later code.

A story has steps of functions (launcher, controller) and happenings in AWS. While a fixture is made, the functions run,
and their calls that change AWS are kept. While a fixture is read, the kept calls are made again in place of the
functions. So AWS then holds the requests of the code that made the fixture, and the run table holds its items.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final

from botocore.exceptions import ClientError

from controller.events import EventBatch, PoolCheck, controller_event_of
from controller.full_pass import FullPass
from controller.reconciliation import reconcile_hint, reconcile_pool
from launcher import actions
from launcher import handler as launcher_handler
from launcher.actions import ActionContext
from launcher.payload import ScheduleFiring, SweepAdvance, read_own_event
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from spotkeep_jobs.backends.job_files import SpecStore
from spotkeep_jobs.cost.prices import PriceList
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, SpendingLimits
from spotkeep_jobs.orphans.collector import orphan_collector
from spotkeep_jobs.record.deployment_records import StackRequest
from spotkeep_jobs.record.fields import Caller
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.stack_deletion.shutdown import Shutdown
from tests.models.account import Account
from tests.models.control_plane import PLATFORM, PRICES, QUEUES
from tests.models.deployment import LAUNCHER, controller_on, launcher_on
from tests.models.dynamodb import Item
from tests.models.ec2 import TEMPLATE, Ec2
from tests.models.faults import directly
from tests.models.pricing import Pricing, product
from tests.models.s3 import BUCKET
from tests.models.sagemaker import ModelJob

Call = dict[str, Any]
"""A call of a function that changed AWS, with `service`, `method` and `arguments`."""
_ADA: Final = Caller(arn="arn:aws:sts::123456789012:assumed-role/Vision/ada", name="ada", verified=True)
_CHANGES: Final = ("create_", "submit_", "put_", "copy_", "stop_", "delete_", "terminate_", "update_", "invoke")
_PRICES: Final = PRICES | {"g6.xlarge": 0.8}
_DEFAULTS: Final = DeploymentDefaults(
    image="image",
    instance_type="ml.m5.xlarge",
    checkpoint_bucket=BUCKET,
    prices=_PRICES,
    fleet_instance_types=("g5.xlarge",),
    limits=SpendingLimits(runs_in_flight_limit=20),
)
_PRODUCT: Final = product("USE1-Train:ml.m5.xlarge", "0.23")
_PRODUCT["product"]["attributes"]["regionCode"] = "us-east-1"


class Site:
    """The deployment.

    Attributes:
        account: The account, but for EC2.
        ec2: EC2.
        record: The run table.
        fleets: The fleets' items, as an instance writes them.
        calls: The calls that functions made, a list for each step of a function.
        stacks: CloudFormation.
    """

    def __init__(self, kept: Sequence[Sequence[Call]] | None = None) -> None:
        """Make the deployment.

        Args:
            kept: The calls of a fixture, to be made in place of the functions. None to let the functions run.
        """
        self.account = Account()
        self.ec2 = Ec2(directly, time=self.account.time)
        self.ec2.subnets = [{"SubnetId": "subnet-a", "AvailabilityZone": "us-east-1a", "VpcId": "vpc-1"}]
        user_data = base64.b64encode(LAUNCHER.training_bundle_uri.encode()).decode()
        self.ec2.placement_groups = [
            {
                "GroupName": "cluster-a",
                "Tags": [
                    {"Key": "spotkeep:deployment", "Value": "spotkeep"},
                    {"Key": "spotkeep:subnet", "Value": "subnet-a"},
                ],
            }
        ]
        self.ec2.versions[1]["LaunchTemplateData"]["UserData"] = user_data
        self.calls: list[list[Call]] = []
        self._kept = None if kept is None else list(kept)
        dynamodb: Any = self.account.dynamodb
        self.record = RunTable.of(client=dynamodb, table_name="runs")
        self.fleets = FleetTable(dynamodb, table_name="runs", retention_days=90)
        self.stacks: Any = SimpleNamespace(
            is_being_deleted=lambda *_args, **_fields: True, answer=lambda *_a, **_f: None
        )
        self._models: dict[str, Any] = {
            "batch": self.account.batch,
            "ec2": self.ec2,
            "functions": self.account.functions,
            "s3": self.account.objects,
            "sagemaker": self.account,
            "scheduler": self.account.schedules,
        }
        clients: dict[str, Any] = {name: _Client(name, model, self.calls) for name, model in self._models.items()}
        clients |= {"dynamodb": self.account.dynamodb, "sns": self.account, "sqs": self.account.dead_letters}
        settings: dict[str, Any] = {
            "checkpoint_bucket": BUCKET,
            "queues": QUEUES,
            "launch_template_id": TEMPLATE,
            "fleet_subnets": {"subnet-a": "us-east-1a"},
            "fleet_nodes_security_group_id": "sg-nodes",
            "fleet_instance_types": ("g5.xlarge",),
        }
        on: dict[str, Any] = {"clients": clients, "now": self.account.now, "prices": _PRICES}
        self.controller = controller_on(
            self.record, self.account, settings=settings | {"deployment_metrics": False}, **on
        )
        self.launcher = launcher_on(
            self.record,
            self.account,
            settings=settings,
            platform=PLATFORM,
            defaults=_DEFAULTS,
            specs=SpecStore(lambda: clients["s3"]),
            fleet_checks=None,
            **on,
        )

    @property
    def makes(self) -> bool:
        """True while a fixture is made."""
        return self._kept is None

    # What a fixture holds

    @property
    def kept(self) -> dict[str, Any]:
        """The calls and the items, as a fixture holds them."""
        items = self.account.dynamodb.items
        return {"calls": self.calls, "items": [items[key] for key in sorted(items)]}

    def goes_on_from(self, items: Sequence[Item]) -> None:
        """Put a fixture's items into the run table. From now on functions run."""
        assert not self._kept, "the story has fewer steps of functions than the fixture"
        self._kept = None
        for item in items:
            self.account.dynamodb.put_item(TableName="runs", Item=item)

    # Steps of functions

    def asks(self, document: dict[str, Any]) -> Any:
        """Let a user invoke the launcher."""
        return self._step(lambda: launcher_handler.answer_to(document, self._context))

    def launcher_goes_on(self) -> None:
        """Let the launcher handle the invocations that wait."""

        def handle(payload: dict[str, Any]) -> None:
            match read_own_event(payload):
                case SweepAdvance() as asked:
                    actions.advance_sweep(asked, self._context)
                case ScheduleFiring() as asked:
                    actions.launch_scheduled(asked, self._context)

        def deliver() -> None:
            while self.account.functions.waiting:
                self.account.functions.deliver(handle)

        self._step(deliver)

    def fires(self, schedule: str) -> None:
        """Let a recurring schedule invoke the launcher."""
        [name] = [each for each in self.account.schedules.recurring if schedule in each]
        payload = self.account.schedules.fire(name, self.account.now().isoformat().replace("+00:00", "Z"))
        assert payload is not None
        self.account.functions.waiting.append(payload)
        self.launcher_goes_on()

    def last_event_comes(self) -> None:
        """Let the controller handle the last event of AWS."""
        event = {"Records": [{"messageId": "m", "body": json.dumps(self.account.events[-1])}]}

        def follow() -> None:
            batch = controller_event_of(event, now=self.account.now())
            assert isinstance(batch, EventBatch)
            for hint in batch.messages:
                reconcile_hint(hint, deployment=self.controller)

        self._step(follow)

    def pool_is_checked(self, run: str, attempt: int) -> None:
        """Let a one-time schedule have a pool reconciled."""
        self._step(lambda: reconcile_pool(PoolCheck(run=run, attempt=attempt), deployment=self.controller))

    def passes(self, *, seconds_left: Callable[[], float] = lambda: 200.0) -> None:
        """Let the clock invoke the controller for a pass over everything."""
        prices, orphans = PriceList(Pricing(AmazonSageMaker=[_PRODUCT])), orphan_collector(self.controller)

        def reconcile() -> None:
            whole = FullPass(self.controller, price_list=prices, orphans=replace(orphans, every=timedelta(minutes=5)))
            report = whole.run(seconds_left=seconds_left)
            assert not report.failures, report.failures

        self._step(reconcile)

    def deletion_begins(self) -> None:
        """Let CloudFormation ask for the deletion of the deployment."""
        request = StackRequest(
            kind="Delete", request_id="r-1", stack_id="stack", logical_resource_id="Shutdown",
            physical_resource_id="Shutdown", response_url="https://answers.example.com", asked_at=self.account.now(),
        )  # fmt: skip
        self._step(lambda: Shutdown(self.controller, self.stacks).begin(request))

    # What a story asks for

    def job(self, name: str) -> ModelJob:
        """Return a job of SageMaker."""
        return self.account.jobs[name]

    def run(self, run: str) -> Run:
        """Return a run's record."""
        found = self.record.runs.get(run)
        assert found is not None, f"there is no run {run}"
        return found

    def time_passes(self, **delta: float) -> None:
        """Let time pass."""
        self.account.seconds += timedelta(**delta).total_seconds()

    @property
    def _context(self) -> ActionContext:
        return ActionContext(deployment=self.launcher, request_id="request", caller=_ADA)

    def _step(self, function: Callable[[], Any]) -> Any:
        if self._kept is None:
            self.calls.append([])
            return function()
        assert self._kept, "the story has more steps of functions than the fixture"
        for call in self._kept.pop(0):
            with contextlib.suppress(ClientError):  # AWS refused it when the fixture was made.
                getattr(self._models[call["service"]], call["method"])(**call["arguments"])
        return None


class _Client:
    """A client of a function, whose calls that change AWS are kept."""

    def __init__(self, service: str, model: Any, calls: list[list[Call]]) -> None:
        self._service, self._model, self._calls = service, model, calls

    def __getattr__(self, method: str) -> Any:
        act = getattr(self._model, method)

        def called(*given: Any, **arguments: Any) -> Any:
            if method.startswith(_CHANGES):
                self._calls[-1].append({"service": self._service, "method": method, "arguments": arguments})
            return act(*given, **arguments)

        return called if callable(act) else act


def as_text(kept: dict[str, Any]) -> str:
    """Write the content of a fixture as JSON, a step or an item a line."""
    parts = []
    for name in ("calls", "items"):
        lines = ",\n".join(json.dumps(each, default=_as_json, sort_keys=True) for each in kept[name])
        parts.append(f'"{name}": [\n{lines}\n]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def from_text(text: str) -> dict[str, Any]:
    """Read a text of `as_text`."""
    kept: dict[str, Any] = json.loads(text, object_hook=_from_json)
    return kept


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"$time": value.astimezone(UTC).isoformat()}
    if isinstance(value, bytes):
        try:
            return {"$text": value.decode()}
        except UnicodeDecodeError:
            return {"$bytes": base64.b64encode(value).decode()}
    return list(value) if isinstance(value, tuple | set | frozenset) else dict(value)


def _from_json(value: dict[str, Any]) -> Any:
    if "$time" in value:
        return datetime.fromisoformat(value["$time"])
    if "$text" in value:
        return value["$text"].encode()
    return base64.b64decode(value["$bytes"]) if "$bytes" in value else value
