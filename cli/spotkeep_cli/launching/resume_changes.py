"""The changes that a resume makes to a run or a sweep.

They come from `--set` and `--source`, compared with the launched job.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotkeep_cli.errors import UsageError
from spotkeep_cli.launching.answers import ask_launcher
from spotkeep_cli.launching.git import pinned
from spotkeep_cli.launching.job_file import with_overrides
from spotkeep_cli.launching.preparation import is_local_source
from spotkeep_cli.launching.source_archive import SourceArchive, pack_source
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_jobs.record.record import Run


@dataclass(frozen=True, kw_only=True)
class ResumeChanges:
    """The changes of a resume.

    Attributes:
        of: The run or sweep that is resumed.
        fields: New values by field, as the launcher takes them. A field that `--set` emptied is None.
        archive: The local source. None where the source stays, or is elsewhere.
        warnings: Warnings for the user, such as a branch that moves and files that stay behind.
    """

    of: Run | Sweep
    fields: dict[str, Any]
    archive: SourceArchive | None = None
    warnings: tuple[Problem, ...] = ()

    def send(self, deployment: DeploymentClient) -> dict[str, Any]:
        """Upload the source, if there is one, resume, and return the launcher's answer.

        Args:
            deployment: The deployment that it ran in.

        Raises:
            RefusedError: The launcher refused it. Carries every problem.
        """
        if self.archive is not None:
            deployment.upload_source(self.fields["source"]["uri"], content=self.archive.content)
        kind, name = _kind_and_id(self.of)
        changes = {"changes": self.fields} if self.fields else {}
        return ask_launcher(deployment, {"action": "resume", kind: name, **changes}, what=f"{name} was not resumed")


def overridden_fields(of: Run | Sweep, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the new values of the fields that `--set` reaches into.

    Args:
        of: The run or sweep that is resumed.
        overrides: `field=value` each.

    Raises:
        UsageError: An override cannot be understood.
    """
    launched = of.document if isinstance(of, Sweep) else of.request
    changed, overridden = with_overrides(copy.deepcopy(dict(launched)), overrides)
    return {str(path[0]): changed.get(str(path[0])) for path in overridden}


def resume_changes(of: Run | Sweep, *, fields: Mapping[str, Any], deployment: DeploymentClient) -> ResumeChanges:
    """Return the changes of a resume.

    Args:
        of: The run or sweep to resume. Its sources are kept with it.
        fields: New values by field. A source may be a path on this machine, relative to the current directory.
        deployment: The deployment that it ran in.

    Raises:
        LocalSourceError: The source cannot be packed.
        UsageError: The source is a branch that cannot be found.
    """
    fields = dict(fields)
    given = fields.get("source")
    if not is_local_source(given):
        warnings: tuple[Problem, ...] = ()
        if given is not None:
            fields["source"], problems, warnings = pinned(given)
            if problems:
                raise UsageError(f"source: {problems[0].problem}", hint=problems[0].fix)
        return ResumeChanges(of=of, fields=fields, warnings=warnings)
    archive = pack_source(Path(given).expanduser())
    team = deployment.isolated(of.team if isinstance(of, Sweep) else of.request.get("team"))
    key = archive.key(run=_kind_and_id(of)[1], team=team)
    fields["source"] = {"uri": f"s3://{deployment.checkpoint_bucket}/{key}", "sha256": archive.sha256}
    return ResumeChanges(of=of, fields=fields, archive=archive, warnings=archive.warnings)


def _kind_and_id(of: Run | Sweep) -> tuple[str, str]:
    return ("sweep", of.sweep) if isinstance(of, Sweep) else ("run", of.run)
