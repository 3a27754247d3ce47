"""Checks the account with the user's own credentials.

It finds orphans, as the controller does, and the quotas that matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_cli.account.vcpu_quotas import NodesQuota, read_nodes_quotas
from spotkeep_cli.aws.calls import translated_aws_errors
from spotkeep_fleet.service_roles import DRILL_SERVICE_ROLES, FLEET_SERVICE_ROLES
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.fleet_orphans import FleetOrphans, VolumeRetention
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs
from spotkeep_jobs.backends.sagemaker.training_job import DEPLOYMENT_TAG
from spotkeep_jobs.cost.prices import KnownPrices
from spotkeep_jobs.document.times import MAX_WAIT_SECONDS
from spotkeep_jobs.errors import AwsRefusedError, isolated
from spotkeep_jobs.orphans.collector import ask
from spotkeep_jobs.orphans.sources import OrphanSearch, sources_of
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.adoption import surprises_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_sagemaker.client import SageMakerClient

    from spotkeep_cli.aws.calls import ClientFactory, Connection
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_jobs.backends.backend import JobView
    from spotkeep_jobs.record.deployment_records import Finding, OrphanReport
    from spotkeep_jobs.record.record import Run


class Usage(StrEnum):
    """The use of a quota, in the words of its name.

    Source: https://docs.aws.amazon.com/general/latest/gr/sagemaker.html (Service quotas)
    """

    SPOT = "spot training job"
    ON_DEMAND = "training job"
    WARM_POOL = "training warm pool"


@dataclass(frozen=True, kw_only=True)
class Quota:
    """The most instances of a type that may be at work, or wait, at the same time.

    Attributes:
        instance_type: The type.
        usage: The use that it limits.
        instances: Number of instances.
        code: The code for a request to raise it.
    """

    instance_type: str
    usage: Usage
    instances: int
    code: str

    def request(self, instances: int) -> str:
        """Return the command that asks AWS for so many instances."""
        return (
            "aws service-quotas request-service-quota-increase --service-code sagemaker "
            f"--quota-code {self.code} --desired-value {instances}"
        )

    def as_document(self) -> dict[str, Any]:
        """Return the quota as JSON."""
        return {
            "instance_type": self.instance_type,
            "usage": self.usage.value,
            "instances": self.instances,
            "quota_code": self.code,
        }


_NAME = re.compile(rf"(?P<type>ml\.\S+) for (?P<usage>{'|'.join(Usage)}) usage")


def quotas_of(entries: Collection[Mapping[str, Any]], *, types: Collection[str]) -> Iterator[Quota]:
    """Yield the quotas of some instance types, among all that Service Quotas lists.

    Args:
        entries: The entries of an answer of ListServiceQuotas.
        types: Those that matter.
    """
    for entry in entries:
        named = _NAME.fullmatch(entry.get("QuotaName", ""))
        if named is not None and named["type"] in types:
            yield Quota(
                instance_type=named["type"],
                usage=Usage(named["usage"]),
                instances=int(entry["Value"]),
                code=entry["QuotaCode"],
            )


def read_quotas(client: Any, *, types: Collection[str]) -> tuple[Quota, ...]:
    """Read the quotas of some instance types. SageMaker has some thousand, a hundred a call.

    Args:
        client: A boto3 client of `service-quotas`.
        types: Those that matter.

    Raises:
        botocore.exceptions.ClientError: Service Quotas refused.
        botocore.exceptions.BotoCoreError: It could not be reached.
    """
    wanted = len(types) * len(Usage)
    found: list[Quota] = []
    for page in client.get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker"):
        found += quotas_of(page["Quotas"], types=types)
        if len(found) >= wanted:
            break
    return tuple(sorted(found, key=lambda quota: (quota.instance_type, list(Usage).index(quota.usage))))


MOST_RUNS: Final = 50
"""Number of newest runs that are read for the instance types that matter."""


_DENIED: Final = "AccessDeniedException"
_LONGEST_JOB: Final = timedelta(seconds=MAX_WAIT_SECONDS)
"""The longest time of a job. SageMaker ends every job by then, so a list needs no older history."""


@dataclass(frozen=True, kw_only=True)
class AccountCheck:
    """The result of a check of the account.

    Attributes:
        findings: The findings, the dearest first.
        unreadable: The resources that could not be read, with the reason.
        quotas: The quotas of the instance types that matter.
        nodes_quotas: The quotas of EC2 that runs with several nodes use.
        quotas_unreadable: The reason that quotas could not be read.
        service_roles: Those that the deployment's fleets and drills need.
        wanted: Number of instances that runs and queues need at the same time, by type and usage.
        last_report: The controller's last report. None when there has been none.
        surprises: By live run, each way in which the job of another client differs from a user's expectation.
    """

    findings: tuple[Finding, ...]
    unreadable: dict[str, str]
    quotas: tuple[Quota, ...] = ()
    nodes_quotas: tuple[NodesQuota, ...] = ()
    quotas_unreadable: str | None = None
    service_roles: tuple[ServiceRole, ...] = ()
    wanted: Mapping[tuple[str, Usage], int] = field(default_factory=dict)
    last_report: OrphanReport | None = None
    surprises: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def wrong(self) -> int:
        """Number of findings that should not exist."""
        return sum(finding.wrong for finding in self.findings)

    @property
    def missing_quotas(self) -> tuple[tuple[Quota, int], ...]:
        """Quotas that are too small for a run or for the queues, each with the number of needed instances."""
        needed = [(quota, self.wanted.get((quota.instance_type, quota.usage), 0)) for quota in self.quotas]
        return tuple((quota, instances) for quota, instances in needed if quota.instances < instances)

    @property
    def usd_per_hour(self) -> float | None:
        """The cost of all findings together in USD an hour. None when no price of them is known."""
        known = [finding.usd_per_hour for finding in self.findings if finding.usd_per_hour is not None]
        return sum(known) if known else None

    def as_document(self) -> dict[str, Any]:
        """Return the check as JSON."""
        last = self.last_report
        return {
            "ok": not self.wrong,
            "findings": [finding.model_dump(mode="json") | {"wrong": finding.wrong} for finding in self.findings],
            "usd_per_hour": self.usd_per_hour,
            "unreadable": self.unreadable,
            "quotas": [quota.as_document() for quota in self.quotas],
            "missing_quotas": [quota.as_document() | {"needed": needed} for quota, needed in self.missing_quotas],
            "nodes_quotas": [quota.as_document() for quota in self.nodes_quotas],
            "quotas_unreadable": self.quotas_unreadable,
            "service_roles": [role.as_document() for role in self.service_roles],
            "surprises": {run: [*said] for run, said in self.surprises.items()},
            "controller": None if last is None else last.model_dump(mode="json", include={"begun_at", "removes"}),
        }


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings with wrong ones first, and among equals the dearest first."""
    return tuple(sorted(findings, key=lambda each: (not each.wrong, -(each.usd_per_hour or 0.0), each.since)))


def wanted_quotas(
    runs: Collection[Run], *, queue_instances: Mapping[str, int] | None = None
) -> dict[tuple[str, Usage], int]:
    """Return the number of instances needed at the same time, by the largest run and by all queues together.

    Args:
        runs: The newest.
        queue_instances: The most instances of each type that the deployment's queues may have at work. They count as
            spot instances, unless all runs in queues have been on demand.
    """
    wanted: dict[tuple[str, Usage], int] = {}
    in_queues: set[Usage] = set()

    def want(instance_type: str, usage: Usage, instances: int) -> None:
        wanted[instance_type, usage] = max(instances, wanted.get((instance_type, usage), 0))

    for run in runs:
        usage = Usage.SPOT if run.place.capacity == "spot" else Usage.ON_DEMAND
        if run.place.queue is not None:
            in_queues.add(usage)
        if run.place.backend != "sagemaker" or " " in run.place.instance_type:
            continue  # Several types, of which SageMaker chose one.
        want(run.place.instance_type, usage, run.place.instance_count)
        if run.request.get("keep_alive"):
            want(run.place.instance_type, Usage.WARM_POOL, run.place.instance_count)
    for instance_type, instances in (queue_instances or {}).items():
        for usage in in_queues or {Usage.SPOT}:
            want(instance_type, usage, instances)
    return wanted


def check_account(deployment: DeploymentClient, *, clock: Callable[[], datetime]) -> AccountCheck:
    """Find orphans as the controller does, and read the quotas of the types that runs use. Changes nothing.

    Args:
        deployment: The deployment, whose credentials are the user's own.
        clock: The time, aware.

    Raises:
        NoConnectionError: The run table cannot be read. The check names every other unreadable resource.
    """
    table = RunTable.of(client=deployment.client("dynamodb"), table_name=deployment.connection.run_table)
    with translated_aws_errors("reading what the account holds", options=deployment.options):
        return _checked(connection=deployment.connection, client=deployment.client, table=table, clock=clock)


def _checked(
    *, connection: Connection, client: ClientFactory, table: RunTable, clock: Callable[[], datetime]
) -> AccountCheck:
    prices = KnownPrices({}, region=connection.region)
    prices.refresh(table, now=clock())
    around = OrphanSearch(
        table=table,
        deployment=connection.deployment,
        prices=prices,
        s3_usd_per_gigabyte_month=lambda: prices.storage.s3_standard,
        clock=clock,
    )
    jobs = OwnTrainingJobs(client("sagemaker"), clock=clock)
    sources = sources_of(
        around=around,
        jobs=jobs,
        s3=client("s3"),
        checkpoint_bucket=connection.checkpoint_bucket,
        fleets=_fleets(connection=connection, client=client, table=table, clock=clock),
    )
    found: list[Finding] = []
    unreadable: dict[str, str] = {}
    last_report = table.deployment.last_orphan_report()
    for name, source in sources.items():
        orphans, problem = ask(source, after=None if last_report is None else last_report.looked_to.get(name))
        found += [each.finding for each in orphans.orphans]
        unreadable.update(orphans.unreadable)
        if problem is not None:
            unreadable[name] = problem
    runs = table.runs.list(limit=MOST_RUNS, unreadable=unreadable)
    wanted = wanted_quotas(runs, queue_instances=connection.instances_of_queues())
    types = {instance_type for instance_type, _ in wanted}
    quotas, of_nodes, why_not = _quotas(client("service-quotas"), types=types, runs=runs)
    return AccountCheck(
        findings=in_order(found),
        unreadable=unreadable,
        quotas=quotas,
        nodes_quotas=of_nodes,
        quotas_unreadable=why_not,
        service_roles=read_service_roles(client("iam"), _needed_roles(connection)),
        wanted=wanted,
        last_report=last_report,
        surprises=surprises_of_runs(runs, jobs, unreadable=unreadable),
    )


def surprises_of_runs(
    runs: Iterable[Run], jobs: SageMakerTrainingJobs, *, unreadable: dict[str, str]
) -> dict[str, list[str]]:
    """Return, by run, each way in which an adopted job at work differs from a user's expectation.

    Args:
        runs: Runs of all kinds.
        jobs: SageMaker's jobs.
        unreadable: Gets each thing that could not be read, and the reason.
    """
    found = {}
    for run in runs:
        if run.adopted and not run.state.ended and run.job_name is not None:
            said = isolated(unreadable, f"job {run.job_name}", partial(_surprises_of, run.job_name, jobs))
            found.update({run.run: said} if said else {})
    return found


def _surprises_of(job_name: str, jobs: SageMakerTrainingJobs) -> list[str]:
    job = jobs.adoptable(job_name)
    return [] if job is None else surprises_of(job, tags=jobs.tags(job.view.job_id))


def _fleets(
    *, connection: Connection, client: ClientFactory, table: RunTable, clock: Callable[[], datetime]
) -> FleetOrphans | None:
    if not connection.fleet_log_group:
        return None
    return FleetOrphans(
        ec2=Ec2Api(lambda: client("ec2")),
        records=FleetTable(client("dynamodb"), table_name=connection.run_table, retention_days=0),
        table=table,
        deployment=connection.deployment,
        # How long volumes stay is the deployment's affair: those that wait for its rule are no finding.
        retention=VolumeRetention(volumes=None, runs=timedelta(0)),
        now=clock,
    )


def _needed_roles(connection: Connection) -> dict[str, str]:
    fleets = FLEET_SERVICE_ROLES if connection.fleet_log_group else {}
    return fleets | (DRILL_SERVICE_ROLES if connection.drill_template_id else {})


def _quotas(
    client: Any, *, types: set[str], runs: Collection[Run]
) -> tuple[tuple[Quota, ...], tuple[NodesQuota, ...], str | None]:
    quotas: tuple[Quota, ...] = ()
    try:
        quotas = read_quotas(client, types=types) if types else ()
        return quotas, read_nodes_quotas(client, runs=runs), None
    except (BotoCoreError, ClientError) as error:
        return quotas, (), str(error)


class OwnTrainingJobs(SageMakerTrainingJobs):
    """The training jobs that carry the deployment's tag, with the credentials of a user."""

    def __init__(self, client: SageMakerClient, *, clock: Callable[[], datetime]) -> None:
        """Bind the client.

        Args:
            client: A boto3 client of SageMaker, with the user's credentials.
            clock: The time, aware.
        """
        super().__init__(client)
        self._clock = clock

    def search_in_progress(self, deployment: str, /) -> Iterator[JobView]:
        """Yield the deployment's jobs in progress, found by their names and their tags instead of a search."""
        recent = {"StatusEquals": "InProgress", "CreationTimeAfter": self._clock() - _LONGEST_JOB}
        for summary in self.listed(recent):
            if self.tags(summary.arn).get(DEPLOYMENT_TAG) != deployment:
                continue
            job = self.observe(summary.name)
            if job is not None and not job.ended:
                yield job

    def observe(self, job_name: str, /) -> JobView | None:
        """Describe a job. None if there is none of that name, or it is not the deployment's."""
        try:
            return super().observe(job_name)
        except AwsRefusedError as error:
            if error.code != _DENIED:
                raise
            return None

    def tags(self, arn: str, /) -> Mapping[str, str]:
        """Return a job's tags. None of a job that is not the deployment's."""
        try:
            return super().tags(arn)
        except AwsRefusedError as error:
            if error.code != _DENIED:
                raise
            return {}


@dataclass(frozen=True, kw_only=True)
class ServiceRole:
    """A service-linked role, with its existence.

    Attributes:
        name: Its name.
        service: The service that owns it, such as `ec2fleet.amazonaws.com`.
        exists: True if it is there. None where IAM gave no answer.
        problem: The reason that IAM gave no answer.
    """

    name: str
    service: str
    exists: bool | None
    problem: str | None = None

    @property
    def creation(self) -> str:
        """The command that makes it."""
        return f"aws iam create-service-linked-role --aws-service-name {self.service}"

    def as_document(self) -> dict[str, Any]:
        """Return the role as JSON."""
        return {"name": self.name, "service": self.service, "exists": self.exists, "problem": self.problem}


def read_service_roles(iam: Any, roles: Mapping[str, str]) -> tuple[ServiceRole, ...]:
    """Ask IAM for each.

    Args:
        iam: A boto3 client.
        roles: Names by service.
    """
    return tuple(_read(iam, name=name, service=service) for service, name in roles.items())


def _read(iam: Any, *, name: str, service: str) -> ServiceRole:
    try:
        iam.get_role(RoleName=name)
    except iam.exceptions.NoSuchEntityException:
        return ServiceRole(name=name, service=service, exists=False)
    except (BotoCoreError, ClientError) as error:
        return ServiceRole(name=name, service=service, exists=None, problem=str(error))
    return ServiceRole(name=name, service=service, exists=True)
