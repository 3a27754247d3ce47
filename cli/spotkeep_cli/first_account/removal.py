"""Removes the traces of first paid hours. Runs end, warm pools end, and objects and logs are deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spotkeep_cli.aws.calls import translated_aws_errors
from spotkeep_cli.errors import CommandLineError, RefusedError
from spotkeep_cli.first_account.plan import NAME
from spotkeep_cli.first_account.report import Removal
from spotkeep_cli.launching.answers import ask_launcher
from spotkeep_fleet.run_prefixes import PREFIXES
from spotkeep_fleet.tags import RUN_TAG
from spotkeep_jobs.progress.training_logs import LOG_GROUP
from spotkeep_jobs.record.states import PoolState

if TYPE_CHECKING:
    from spotkeep_cli.aws.calls import ClientFactory
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record.record import Run

_MOST_RUNS: Final = 10_000
_KEYS_A_CALL: Final = 1000
_PATIENCE: Final = timedelta(minutes=10)


def reason_of(error: CommandLineError) -> str:
    """Return the reason in an error, with each problem of a refusal and without the path of the job file."""
    return "; ".join(str(each) for each in getattr(error, "problems", ())) or error.message


def runs_of_first_hours(deployment: DeploymentClient) -> list[Run]:
    """Return the recorded runs of all first paid hours in this deployment, newest first."""
    runs = deployment.table.runs.list(limit=_MOST_RUNS, unreadable={})
    return [run for run in runs if run.name == NAME and run.run.startswith(f"{NAME}-")]


class Remover:
    """Removes the traces of runs.

    Args:
        deployment: Their deployment.
        client: Makes clients of boto3 with the rights of who deployed.
        invocation: The command's own words, and its clock.
    """

    def __init__(self, deployment: DeploymentClient, *, client: ClientFactory, invocation: Invocation) -> None:
        self._deployment, self._client, self._invocation = deployment, client, invocation
        self._removed: list[str] = []
        self._left: list[str] = []

    def remove(self, runs: list[Run]) -> Removal:
        """Remove the traces of these runs, and return the outcome. An error leaves a thing, and the others go on."""
        for run in runs:
            if not run.state.ended:
                self._try(f"{run.run}, which still runs", partial(self._stop, run))
        for run in runs:
            self._try(f"the warm pool of {run.run}", partial(self._end_pools, run.run))
        for run in runs:
            self._try(f"the objects of {run.run}", partial(self._delete_objects, run.run))
            self._try(f"the logs of {run.run}", partial(self._delete_logs, run))
            if run.place.backend == "ec2":
                self._try(f"volumes of {run.run}", partial(self._wait_for_volumes, run.run))
        return Removal(removed=tuple(self._removed), left=tuple(self._left))

    def _try(self, what: str, act: Callable[[], None]) -> None:
        try:
            with translated_aws_errors(f"removing {what}", options=self._invocation.options):
                act()
        except CommandLineError as error:
            self._left.append(f"{what}: {reason_of(error)}")

    def _stop(self, run: Run) -> None:
        self._ask("stop", run.run)
        table = self._deployment.table.runs
        self._wait(lambda: (found := table.get(run.run)) is None or found.state.ended, f"{run.run} has not ended")
        self._removed.append(f"{run.run} was stopped")

    def _end_pools(self, run: str) -> None:
        def kept() -> bool:
            return any(pool.state is PoolState.AVAILABLE for pool in self._deployment.table.pools.of_run(run))

        if kept():
            # The launcher asks SageMaker first. A pool that another job took, or that expired, is over in the record.
            with contextlib.suppress(RefusedError):
                self._ask("stop-pool", run)
                self._removed.append(f"the warm pool of {run}")
            self._wait(lambda: not kept(), f"the pool of {run} has not ended")

    def _delete_objects(self, run: str) -> None:
        bucket, s3 = self._deployment.checkpoint_bucket, self._client("s3")
        count = 0
        for keys in self._versions(s3, bucket=bucket, run=run):
            refused = s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True}).get("Errors", [])
            if refused:
                raise CommandLineError(f"S3 refused {len(refused)} objects: {refused[0].get('Message', 'no reason')}")
            count += len(keys)
        if count:
            self._removed.append(f"{count} objects of {run}")

    def _versions(self, s3: Any, *, bucket: str, run: str) -> Iterator[list[dict[str, str]]]:
        for prefix in PREFIXES:
            pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=f"{prefix}{run}/")
            found = [
                {"Key": each["Key"], "VersionId": each["VersionId"]}
                for page in pages
                for each in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
            ]
            for start in range(0, len(found), _KEYS_A_CALL):
                yield found[start : start + _KEYS_A_CALL]

    def _delete_logs(self, run: Run) -> None:
        logs, count = self._client("logs"), 0
        group = self._deployment.connection.fleet_log_group if run.place.backend == "ec2" else LOG_GROUP
        names = [name for attempt in self._deployment.table.runs.attempts(run.run) for name in attempt.log_names]
        for name in names:
            with contextlib.suppress(logs.exceptions.ResourceNotFoundException):  # No job has written a log yet.
                pages = logs.get_paginator("describe_log_streams").paginate(
                    logGroupName=group, logStreamNamePrefix=f"{name}/"
                )
                for stream in [each["logStreamName"] for page in pages for each in page["logStreams"]]:
                    logs.delete_log_stream(logGroupName=group, logStreamName=stream)
                    count += 1
        if count:
            self._removed.append(f"{count} log streams of {run.run}")

    def _wait_for_volumes(self, run: str) -> None:
        """Wait until the controller has deleted the volume and its snapshots."""
        ec2 = self._client("ec2")
        own = {"Filters": [{"Name": f"tag:{RUN_TAG}", "Values": [run]}]}

        def gone() -> bool:
            return not ec2.describe_volumes(**own)["Volumes"] and not ec2.describe_snapshots(**own)["Snapshots"]

        self._wait(gone, "the controller has not deleted them yet, and does so within the hour")

    def _ask(self, action: str, run: str) -> None:
        ask_launcher(self._deployment, {"action": action, "run": run}, what=f"no {action} of {run}")

    def _wait(self, until: Callable[[], bool], problem: str) -> None:
        deadline = self._invocation.seams.now() + _PATIENCE
        while not until():
            if self._invocation.seams.now() > deadline:
                raise CommandLineError(problem)
            self._invocation.pause()
