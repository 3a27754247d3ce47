"""What a resume changes of a run's request: what `--set` and `--source` say, against the request as it is recorded."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotkeep_cli.errors import UsageError
from spotkeep_cli.launching.git import pinned
from spotkeep_cli.launching.job_file import with_overrides
from spotkeep_cli.launching.preparation import is_local_source
from spotkeep_cli.launching.source_archive import SourceArchive, pack_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotkeep_cli.aws.deployment import DeploymentClient


@dataclass(frozen=True, kw_only=True)
class ResumeChanges:
    """The changes of a resume.

    Attributes:
        fields: New values by field, as the launcher takes them; a field that `--set` emptied is None.
        archive: The local source; None where the source stays, or is elsewhere.
        source_key: Its key in the checkpoint bucket.
    """

    fields: dict[str, Any]
    archive: SourceArchive | None = None
    source_key: str | None = None

    def send(self, deployment: DeploymentClient, what: Mapping[str, str]) -> dict[str, Any]:
        """Upload the source, if there is one, resume, and return the launcher's answer.

        Args:
            deployment: Where it ran.
            what: The run or the sweep: `run` or `sweep`, and its id.
        """
        if self.archive is not None and self.source_key is not None:
            deployment.upload_source(key=self.source_key, content=self.archive.content)
        changes = {"changes": self.fields} if self.fields else {}
        return deployment.invoke_launcher({"action": "resume", **what, **changes})


def overridden_fields(document: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return the new values of the fields that `--set` reaches into.

    Args:
        document: What was launched.
        overrides: `field=value` each.

    Raises:
        UsageError: An override cannot be understood.
    """
    changed, overridden = with_overrides(copy.deepcopy(dict(document)), overrides)
    return {str(path[0]): changed.get(str(path[0])) for path in overridden}


def resume_changes(
    what: str, *, fields: Mapping[str, Any], checkpoint_bucket: str, isolated_team: str | None = None
) -> ResumeChanges:
    """Return what a resume changes.

    Args:
        what: The id of the run or the sweep, which its sources are kept with.
        fields: New values by field; a source may be a path on this machine, relative to the current directory.
        checkpoint_bucket: Where a local source will be uploaded to.
        isolated_team: Its team, where that team's sources are stored apart.

    Raises:
        SourceError: The source cannot be packed.
        UsageError: The source is a branch that cannot be found.
    """
    fields = dict(fields)
    given = fields.get("source")
    if not is_local_source(given):
        if given is not None:
            fields["source"], problems, _ = pinned(given)
            if problems:
                raise UsageError(f"source: {problems[0].problem}", hint=problems[0].fix)
        return ResumeChanges(fields=fields)
    archive = pack_source(Path(given).expanduser())
    key = archive.key(run=what, team=isolated_team)
    fields["source"] = {"uri": f"s3://{checkpoint_bucket}/{key}", "sha256": archive.sha256}
    return ResumeChanges(fields=fields, archive=archive, source_key=key)
