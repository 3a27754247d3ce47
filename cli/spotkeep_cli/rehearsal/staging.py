"""What every rehearsal begins with: a local AWS, and the real app deployed to it; each stage is timed and shown."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from spotkeep_cli.account.local_people import let_developer_train
from spotkeep_cli.rehearsal.view import Stage
from spotkeep_local import cdk, lifecycle
from spotkeep_local.lifecycle import LocalAws
from spotkeep_local.options import ServerOptions

if TYPE_CHECKING:
    from spotkeep_cli.rehearsal.engine import RehearsalPlan
    from spotkeep_cli.rehearsal.view import RehearsalView

# A rehearsed job takes seconds where a real one takes hours; its checkpoints go up as much faster.
QUICK_SYNC = ServerOptions(sync_interval_seconds=0.2)
_SECONDS_OF = {stage: stage.name.lower() for stage in Stage} | {Stage.TRAINING: "run"}
"""The stages by the words of the report's `seconds`, where programs read of deploy, launch and run."""


class Staging:
    """Starts the local AWS, deploys the app, and times the stages.

    Args:
        plan: What is rehearsed.
        view: Shows what goes on.
    """

    def __init__(self, plan: RehearsalPlan[Any], *, view: RehearsalView) -> None:
        self._plan, self._view = plan, view
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def local_aws(self) -> Iterator[LocalAws]:
        """Give the local AWS; it is stopped afterwards if it was started here."""
        plan = self._plan
        found = lifecycle.status(plan.state_dir)
        with self.stage(Stage.LOCAL_AWS) as outcome:
            local = found or lifecycle.start(plan.state_dir, options=plan.scenario.server, on_waiting=self._view.note)
            outcome.append(f"{local.endpoint_url}, {'found running' if found else 'started'}")
        try:
            yield local
        finally:
            if found is None and not plan.keep_running:
                lifecycle.stop(plan.state_dir)

    def deploy(self, local: LocalAws) -> None:
        """Bootstrap the account, unless that was done before, and deploy the app."""
        project_dir = self._plan.project_dir
        with self.stage(Stage.BOOTSTRAP) as outcome:
            did = cdk.bootstrap(local, project_dir=project_dir, on_progress=self._toolkit_progress())
            outcome.append("done" if did else "was done before")
        with self.stage(Stage.DEPLOY) as outcome:
            deployed: set[str] = set()
            cdk.deploy(
                local,
                project_dir=project_dir,
                context={"deployment": self._plan.deployment, **self._plan.settings},
                on_progress=self._toolkit_progress(deployed),
            )
            let_developer_train(local, deployment=self._plan.deployment)
            outcome.append(", ".join(sorted(deployed)))

    def _toolkit_progress(self, finished: set[str] | None = None) -> Callable[[cdk.CdkProgress], None]:
        done: dict[str, int] = {}
        totals: dict[str, int] = {}

        def show(progress: cdk.CdkProgress) -> None:
            if progress.stack and progress.done is not None and progress.total is not None:
                done[progress.stack], totals[progress.stack] = progress.done, progress.total
            if progress.stack and progress.finished:
                done[progress.stack] = totals.get(progress.stack, 0)
                if finished is not None:
                    finished.add(progress.stack)
            self._view.progress(
                done=sum(done.values()), total=sum(totals.values()) or None, text=progress.stack or progress.text
            )

        return show

    @contextlib.contextmanager
    def stage(self, stage: Stage) -> Iterator[list[str]]:
        """Time a stage; what the caller appends is shown as what came of it."""
        outcome: list[str] = []
        self._view.stage_started(stage)
        started = time.monotonic()
        yield outcome
        self.seconds[_SECONDS_OF[stage]] = seconds = time.monotonic() - started
        self._view.stage_finished(stage, seconds=seconds, text="".join(outcome))
