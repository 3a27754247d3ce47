"""What every rehearsal begins with: a local AWS, the real app deployed to it, an observer told of each stage."""

from __future__ import annotations

import contextlib
import enum
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from spotkeep_local import cdk, lifecycle
from spotkeep_local.lifecycle import LocalAws
from spotkeep_local.options import ServerOptions
from spotkeep_rehearsal.evidence import ReceivedNotification

# A rehearsed job takes seconds where a real one takes hours; its checkpoints go up as much faster.
QUICK_SYNC = ServerOptions(sync_interval_seconds=0.2)


class Stage(enum.StrEnum):
    """The stages of rehearsals, by the words a person reads."""

    LOCAL_AWS = "local AWS"
    BOOTSTRAP = "cdk bootstrap"
    DEPLOY = "cdk deploy"
    LAUNCH = "launch"
    TRAINING = "training"
    NOTIFICATIONS = "notifications"
    FIRST_JOB = "first job"
    NEXT_JOB = "next job"
    EXTENSION = "extension"
    REMINDER = "reminder"
    EXPIRY = "expiry"
    LEFT_ALONE = "left alone"
    MOVE = "other zone"
    RETURN = "same zone"
    COMPLETION = "completion"


_SECONDS_OF = {stage: stage.name.lower() for stage in Stage} | {Stage.TRAINING: "run"}
"""The stages by the words of the report's `seconds`, where programs read of deploy, launch and run."""


class Observer(Protocol):
    """Who is told while a rehearsal goes on: a terminal, or a log."""

    def stage_started(self, stage: Stage) -> None:
        """A stage begins."""

    def stage_progress(self, stage: Stage, *, done: int, total: int | None, text: str) -> None:
        """A stage went on: ``done`` of ``total`` (``None`` when unknown), and what it is at."""

    def stage_note(self, stage: Stage, text: str) -> None:
        """Something worth a line of its own happened."""

    def stage_finished(self, stage: Stage, *, seconds: float, text: str) -> None:
        """A stage ended, with what came of it."""

    def job_said(self, line: str) -> None:
        """The training script printed a line."""

    def notification_received(self, notification: ReceivedNotification) -> None:
        """The subscriber got a notification."""


class Staging:
    """Sets the stage: starts the local AWS, deploys, times the stages.

    Args:
        project_dir: The checkout whose app is deployed.
        state_dir: Where the local AWS lives; it is started there unless it already runs.
        deployment: The name it is deployed under.
        keep_running: Leave the local AWS up afterwards, even if it was started here.
        observer: Is told what goes on.
        settings: Of the deployment, besides its name.
        options: Of the local AWS, where it is started here.
    """

    def __init__(
        self,
        *,
        project_dir: Path,
        state_dir: Path,
        deployment: str,
        keep_running: bool,
        observer: Observer,
        settings: Mapping[str, Any] | None = None,
        options: ServerOptions = QUICK_SYNC,
    ) -> None:
        self._project_dir, self._state_dir = project_dir, state_dir
        self._keep_running, self._observer = keep_running, observer
        self._settings = {"deployment": deployment, **(settings or {})}
        self._options = options
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def local_aws(self) -> Iterator[LocalAws]:
        """The local AWS; stopped afterwards if it was started here."""
        found = lifecycle.status(self._state_dir)
        with self.stage(Stage.LOCAL_AWS) as outcome:
            waiting = functools.partial(self._observer.stage_note, Stage.LOCAL_AWS)
            local = found or lifecycle.start(self._state_dir, options=self._options, on_waiting=waiting)
            outcome.append(f"{local.endpoint_url}, {'found running' if found else 'started'}")
        try:
            yield local
        finally:
            if found is None and not self._keep_running:
                lifecycle.stop(self._state_dir)

    def deploy(self, local: LocalAws) -> None:
        """Bootstrap, unless that was done before, and deploy the app."""
        with self.stage(Stage.BOOTSTRAP) as outcome:
            did = cdk.bootstrap(
                local, project_dir=self._project_dir, on_progress=self._toolkit_progress(Stage.BOOTSTRAP)
            )
            outcome.append("done" if did else "was done before")
        with self.stage(Stage.DEPLOY) as outcome:
            deployed: set[str] = set()
            cdk.deploy(
                local,
                project_dir=self._project_dir,
                context=self._settings,
                on_progress=self._toolkit_progress(Stage.DEPLOY, deployed),
            )
            outcome.append(", ".join(sorted(deployed)))

    def _toolkit_progress(self, stage: Stage, finished: set[str] | None = None) -> Callable[[cdk.Progress], None]:
        done: dict[str, int] = {}
        totals: dict[str, int] = {}

        def tell(progress: cdk.Progress) -> None:
            if progress.stack and progress.done is not None and progress.total is not None:
                done[progress.stack], totals[progress.stack] = progress.done, progress.total
            if progress.stack and progress.finished:
                done[progress.stack] = totals.get(progress.stack, 0)
                if finished is not None:
                    finished.add(progress.stack)
            self._observer.stage_progress(
                stage, done=sum(done.values()), total=sum(totals.values()) or None, text=progress.stack or progress.text
            )

        return tell

    @contextlib.contextmanager
    def stage(self, stage: Stage) -> Iterator[list[str]]:
        """Time a stage; what the caller appends is told as what came of it."""
        outcome: list[str] = []
        self._observer.stage_started(stage)
        started = time.monotonic()
        yield outcome
        self.seconds[_SECONDS_OF[stage]] = seconds = time.monotonic() - started
        self._observer.stage_finished(stage, seconds=seconds, text="".join(outcome))
