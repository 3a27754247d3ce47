"""What every rehearsal begins with: a local AWS, and the real app deployed to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_cli.account.local_people import let_developer_train
from spotkeep_cli.rehearsal.view import Stage
from spotkeep_local import cdk, lifecycle
from spotkeep_local.lifecycle import LocalAws
from spotkeep_local.options import ServerOptions

if TYPE_CHECKING:
    from spotkeep_cli.rehearsal.view import RehearsalView

# A rehearsed job takes seconds where a real one takes hours; its checkpoints go up as much faster.
QUICK_SYNC = ServerOptions(sync_interval_seconds=0.2)


@contextlib.contextmanager
def local_aws(
    state_dir: Path, *, options: ServerOptions, keep_running: bool, view: RehearsalView
) -> Iterator[LocalAws]:
    """Give the local AWS; it is stopped afterwards if it was started here.

    Args:
        state_dir: Where it lives.
        options: What it is started with, unless it runs already.
        keep_running: Whether it stays up, even if it was started here.
        view: Shows what goes on.
    """
    found = lifecycle.status(state_dir)
    with view.stage(Stage.LOCAL_AWS) as outcome:
        local = found or lifecycle.start(state_dir, options=options, on_waiting=view.note)
        outcome.append(f"{local.endpoint_url}, {'found running' if found else 'started'}")
    try:
        yield local
    finally:
        if found is None and not keep_running:
            lifecycle.stop(state_dir)


def deploy(
    local: LocalAws, *, project_dir: Path, deployment: str, settings: Mapping[str, str], view: RehearsalView
) -> None:
    """Bootstrap the account, unless that was done before, and deploy the app.

    Args:
        local: Where.
        project_dir: The checkout whose app it is.
        deployment: The name that it is deployed under.
        settings: Its other settings.
        view: Shows what goes on.
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
