"""The deployed app as a rehearsal uses it.

The connection, the preparation and the launcher are the same as those of `launch`.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from botocore.exceptions import ClientError

from spotkeep_cli.account.local_people import let_developer_train
from spotkeep_cli.errors import UsageError
from spotkeep_cli.launching.answers import read_answer
from spotkeep_cli.launching.job_file import channels_on_file_systems
from spotkeep_cli.launching.preparation import prepare, send
from spotkeep_cli.rehearsal.view import Stage
from spotkeep_cli.rendering.lists import REHEARSAL_TOKEN
from spotkeep_fleet.secret_references import read_reference
from spotkeep_local import cdk, lifecycle
from spotkeep_local.lifecycle import LocalAws
from spotkeep_local.options import ServerOptions

if TYPE_CHECKING:
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.launching.job_file import JobDocument
    from spotkeep_cli.rehearsal.view import RehearsalView
    from spotkeep_cli.seams import Invocation

# A rehearsed job takes seconds where a real one takes hours; its checkpoints go up as much faster.
QUICK_SYNC = ServerOptions(sync_interval_seconds=0.2)

_REHEARSALS_LOCK: Final = "rehearsals.lock"
"""Held by each rehearsal under way. It has the process id of a server that the last one stops."""


_OF_ONE_RUN: Final = frozenset({"token", "checkpoint_prefix", "runs", "on_demand_base"})


@contextlib.contextmanager
def local_aws(
    state_dir: Path, *, options: ServerOptions, keep_running: bool, view: RehearsalView
) -> Iterator[LocalAws]:
    """Give the local AWS. It is stopped afterwards if it was started here.

    Where another rehearsal uses it by then, the last one stops it.

    Args:
        state_dir: The folder of its state.
        options: The options of its start. They do not apply where it runs already.
        keep_running: True to keep it up, even if it was started here.
        view: Shows the progress.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    with (state_dir / _REHEARSALS_LOCK).open("a+", encoding="ascii") as rehearsals:
        fcntl.flock(rehearsals, fcntl.LOCK_SH)
        found = lifecycle.status(state_dir)
        with view.stage(Stage.LOCAL_AWS) as outcome:
            local = found or lifecycle.start(state_dir, options=options, on_waiting=view.note)
            outcome.append(f"{local.endpoint_url}, {'found running' if found else 'started'}")
        try:
            yield local
        finally:
            if found is None and not keep_running:
                rehearsals.truncate(0)
                rehearsals.write(str(local.pid))
                rehearsals.flush()
            rehearsals.seek(0)
            if not keep_running and rehearsals.read() == str(local.pid):
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(rehearsals, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    rehearsals.truncate(0)
                    lifecycle.stop(state_dir)


def is_rehearsed_on(state_dir: Path) -> bool:
    """Return True while a rehearsal uses the local AWS with this folder."""
    if not (state_dir / _REHEARSALS_LOCK).exists():
        return False
    with (state_dir / _REHEARSALS_LOCK).open("a", encoding="ascii") as rehearsals:
        try:
            fcntl.flock(rehearsals, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def deploy(
    local: LocalAws, *, project_dir: Path, deployment: str, settings: Mapping[str, str], view: RehearsalView
) -> None:
    """Bootstrap the account, unless that was done before, and deploy the app.

    Args:
        local: The local AWS to deploy to.
        project_dir: The app's checkout.
        deployment: The deployment's name.
        settings: Its other settings.
        view: Shows the progress.
    """
    with view.stage(Stage.BOOTSTRAP) as outcome:
        did = cdk.bootstrap(local, project_dir=project_dir, on_progress=_shown_by(view))
        outcome.append("done" if did else "was done before")
    with view.stage(Stage.DEPLOY) as outcome:
        deployed: set[str] = set()
        context = {"deployment": deployment, **settings}
        cdk.deploy(local, project_dir=project_dir, context=context, on_progress=_shown_by(view, deployed))
        let_developer_train(local, deployment=deployment)
        outcome.append(", ".join(sorted(deployed)))


def with_local_secrets(document: JobDocument) -> JobDocument:
    """Return a job file that refers to its secrets by their names. The local AWS has no secret of a real account's ARN.

    Args:
        document: The judged job file.
    """
    given, source = document.fields.get("secrets"), document.fields.get("source")
    changes: dict[str, object] = {}
    if isinstance(given, Mapping) and given:
        changes["secrets"] = {variable: _by_name(text) for variable, text in given.items()}
    if isinstance(source, Mapping) and source.get("secret") is not None:
        changes["source"] = {**source, "secret": _by_name(source["secret"])}
    return document.with_fields(changes) if changes else document


def secrets_of(fields: Mapping[str, Any]) -> list[str]:
    """Return the names of the secrets in a job file of `with_local_secrets`, each once.

    Args:
        fields: The fields of the job file.
    """
    source = fields.get("source")
    texts = [*(fields.get("secrets") or {}).values(), source.get("secret") if isinstance(source, Mapping) else None]
    references = (read_reference(str(text)) for text in texts if text is not None)
    return sorted({reference.name for reference in references if reference is not None})


def secret_settings(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings by which the deployment on the local AWS lets jobs read the secrets of a job file."""
    names = secrets_of(fields)
    return {"secrets": ",".join(names), "secret_key_arns": ""} if names else {}


def require_local_secrets(local: LocalAws, fields: Mapping[str, Any]) -> None:
    """Look whether the local AWS has the secrets of a job file. It has its own, which the user makes there once.

    Args:
        local: The local AWS.
        fields: The fields of the job file.

    Raises:
        UsageError: It lacks some. The error names each, and the commands that make them.
    """
    client = local.session().client("secretsmanager")
    missing = []
    for name in secrets_of(fields):
        try:
            if client.describe_secret(SecretId=name).get("DeletedDate") is not None:
                missing.append(name)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
            missing.append(name)
    if missing:
        commands = "; ".join(
            f"aws secretsmanager create-secret --name {name} --secret-string file://FILE" for name in missing
        )
        raise UsageError(
            f"the local AWS has no secret {', '.join(missing)}, and takes none from an account: nothing was rehearsed",
            hint=f'create it once, with any value that the script takes: spotkeep local up; eval "$(spotkeep local env '
            f'--administrator)"; {commands}',
        )


def require_no_file_systems(fields: Mapping[str, Any]) -> None:
    """Look whether a job file has channels on file systems, which the deployment of a rehearsal does not name.

    Args:
        fields: The fields of the judged job file.

    Raises:
        UsageError: It has some. The error names each.
    """
    if mounted := channels_on_file_systems(fields):
        there = " ".join(f"--set channels.{name}=s3://BUCKET/PREFIX" for name in mounted)
        if fields.get("checkpoint_channel") is not None:
            there += " --set checkpoint_channel="  # checkpoints are on the nodes' own disks then
        raise UsageError(
            f"a rehearsal mounts no file system, and channel {', '.join(mounted)} is on one: nothing was rehearsed",
            hint=f"put a sample of the data into a bucket of the local AWS, and name it for the rehearsal: {there}",
        )


def _by_name(text: object) -> object:
    reference = read_reference(text) if isinstance(text, str) else None
    if reference is None:
        return text
    return reference.name if reference.key is None else f"{reference.name}:{reference.key}::"


def _shown_by(view: RehearsalView, finished: set[str] | None = None) -> Callable[[cdk.CdkProgress], None]:
    done: dict[str, int] = {}
    totals: dict[str, int] = {}

    def show(progress: cdk.CdkProgress) -> None:
        if progress.stack and progress.done is not None and progress.total is not None:
            done[progress.stack], totals[progress.stack] = progress.done, progress.total
        if progress.stack and progress.finished:
            done[progress.stack] = totals.get(progress.stack, 0)
            if finished is not None:
                finished.add(progress.stack)
        view.progress(done=sum(done.values()), total=sum(totals.values()) or None, text=progress.stack or progress.text)

    return show


class RehearsedDeployment:
    """Launches one job file under the run ids that a rehearsal gives, and acts on these runs.

    Args:
        deployment: The deployment on the local AWS.
        document: The job file.
        new_token: Makes an idempotency token for each launch.

    Attributes:
        job: The job file's fields.
        name: The deployment's name.
        table: The run table.
        notification_topic_arn: The ARN of the topic of notifications.
        controller_function: The name of the controller.
        job_log: Reads the log of an attempt.
    """

    def __init__(self, deployment: DeploymentClient, *, document: JobDocument, new_token: Callable[[], str]) -> None:
        self._deployment, self._document, self._new_token = deployment, document, new_token
        self.job: Mapping[str, Any] = document.fields
        self.name, self.table, self.job_log = deployment.name, deployment.table, deployment.job_log
        self.notification_topic_arn = deployment.notification_topic_arn
        self.controller_function = deployment.controller_function

    @classmethod
    def connect(cls, document: JobDocument, *, invocation: Invocation) -> Self:
        """Find the app on the local AWS, as a command called there would.

        Args:
            document: The job file.
            invocation: The command's own words.

        Raises:
            NoConnectionError: It cannot be found.
        """
        seams, options = invocation.seams, replace(invocation.options, local=True)
        return cls(seams.connect(options), document=document, new_token=lambda: f"{REHEARSAL_TOKEN}{seams.new_token()}")

    def launch(self, *, run: str, **fields: object) -> None:
        """Launch the job as a run, or a sweep, of this id, the way a user would.

        Several runs of one file need a token and a checkpoint prefix each, so those that the file names are left out.

        Args:
            run: The id of the run or the sweep.
            fields: Fields of the job file that have another value in it.

        Raises:
            RefusedError: The launcher refused the job file. Carries every problem, with its line.
        """
        document = self._document.with_fields(fields) if fields else self._document
        kept = {name: value for name, value in document.fields.items() if name not in _OF_ONE_RUN}
        environment = {**(kept.get("environment") or {}), "SPOTKEEP_PROGRESS_SECONDS": "0"}
        document = replace(document, fields={**kept, "run": run, "environment": environment})
        prepared = prepare(document, deployment=self._deployment, new_token=self._new_token)
        send(prepared, deployment=self._deployment)

    def stop(self, name: str) -> bool:
        """Ask the launcher to stop a run or a sweep, unless it has ended.

        Return True if the launcher was asked.

        Raises:
            RefusedError: A limit stands against it.
        """
        for kind, item in (("sweep", self.table.sweeps.get(name)), ("run", self.table.runs.get(name))):
            if item is not None and not item.state.ended:
                self.ask("stop", **{kind: name})
                return True
        return False

    def ask(self, action: str, **fields: object) -> None:
        """Ask the launcher for an action, for example `extend-pool` or `pause`.

        The action is on a run or its pool, a sweep or a schedule.

        Args:
            action: The action.
            fields: Further fields of the request, for example `run="digits-1"`.

        Raises:
            RefusedError: The named thing does not exist, or a limit forbids the action.
        """
        payload = {"action": action, **fields}
        asked = " ".join(f"{name} {value}" for name, value in fields.items())
        read_answer(self._deployment.invoke_launcher(payload), what=f"{action} was refused for {asked}")
