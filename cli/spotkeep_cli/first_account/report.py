"""The report of the first paid hour, for an issue. Pure. Account ids and names of persons are replaced."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spotkeep_cli.first_account.questions import QUESTIONS, Answer, SeenJob

if TYPE_CHECKING:
    from spotkeep_cli.first_account.plan import PlannedJob
    from spotkeep_cli.first_account.questions import Observed

_ACCOUNT_ID: Final = re.compile(r"(?<!\d)\d{12}(?!\d)")
_NOT_PERSONAL: Final = frozenset({"root", "user", "users", "ubuntu", "admin", "administrator", "spotkeep", "developer"})


ALWAYS_LEFT: Final = (
    "the records of the runs, which expire by themselves after a year",
    "the names of the training jobs in SageMaker's list, which bill nothing",
)


@dataclass(frozen=True, kw_only=True)
class Removal:
    """The outcome of a removal.

    Attributes:
        removed: The removed things in words.
        left: The things that are left, with the reason.
    """

    removed: tuple[str, ...]
    left: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FirstAccountReport:
    """The report.

    Attributes:
        version: The version of Spotkeep.
        region: The region of the deployment.
        local: True on the local AWS.
        ceiling_usd: The ceiling.
        spent_usd: The cost by the records.
        ended_early: The reason for an early end. Empty for a whole hour.
        jobs: The jobs of the plan.
        observed: The observations by the kind of the job.
        removal: The outcome of the removal.
        people: The names of persons, to be replaced.
    """

    version: str
    region: str
    local: bool
    ceiling_usd: float
    spent_usd: float
    ended_early: str
    jobs: Sequence[PlannedJob]
    observed: Observed
    removal: Removal
    people: Collection[str]

    def answers(self) -> list[tuple[str, Answer]]:
        """Return the answer to each question, by the question's id."""
        return [(each.id, each.answered(self.observed, local=self.local)) for each in QUESTIONS]

    def to_document(self) -> dict[str, Any]:
        """Return the report as JSON."""
        questions = {each.id: each for each in QUESTIONS}
        document = {
            "ok": not self.ended_early and not self.removal.left,
            "version": self.version,
            "region": self.region,
            "local": self.local,
            "ceiling_usd": self.ceiling_usd,
            "spent_usd": round(self.spent_usd, 4),
            "ended_early": self.ended_early,
            "jobs": [self._job(job) for job in self.jobs],
            "answers": [
                {
                    "id": id_,
                    "asks": questions[id_].asks,
                    "documented": questions[id_].documented,
                    "verdict": answer.verdict.value,
                    "seen": answer.seen,
                }
                for id_, answer in self.answers()
            ],
            "removed": list(self.removal.removed),
            "left": list(self.removal.left),
            "always_left": list(ALWAYS_LEFT),
        }
        replaced: dict[str, Any] = _replaced(document, people=self.people)
        return replaced

    def _job(self, job: PlannedJob) -> dict[str, Any]:
        seen = self.observed.get(job.kind, SeenJob())
        return {
            "kind": job.kind,
            "run": seen.run,
            "runs_on": job.runs_on,
            "usd_at_most": job.usd_at_most,
            "state": seen.state,
            "problem": seen.problem or job.left_out,
            "printed": [dict(fact) for fact in seen.printed],
            "statuses": [
                [each["Status"] for each in training.get("SecondaryStatusTransitions", ())] for training in seen.jobs
            ],
            "noted": json.loads(json.dumps(dict(seen.noted), default=str)),
        }


def without_names(text: str, *, people: Collection[str]) -> str:
    """Return a text without ids of accounts and names of persons.

    Args:
        text: The text.
        people: The names.
    """
    text = _ACCOUNT_ID.sub("ACCOUNT", text)
    for name in sorted(people, key=len, reverse=True):
        if len(name) > 2 and name.lower() not in _NOT_PERSONAL:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "PERSON", text, flags=re.IGNORECASE)
    return text


def _replaced(value: Any, *, people: Collection[str]) -> Any:
    """Return a JSON value, each text in it without names. Keys stay."""
    if isinstance(value, str):
        return without_names(value, people=people)
    if isinstance(value, dict):
        return {key: _replaced(each, people=people) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, people=people) for each in value]
    return value


def markdown(document: dict[str, Any]) -> str:
    """Return the report as a page.

    Args:
        document: The report as JSON.
    """
    where = "the local AWS" if document["local"] else document["region"]
    lines = [f"# First account: Spotkeep {document['version']} in {where}", ""]
    lines += [f"Cost by the records: {document['spent_usd']:.2f} USD of {document['ceiling_usd']:.2f} USD.", ""]
    if document["ended_early"]:
        lines += [f"The hour ended early: {document['ended_early']}", ""]
    rows = [(each["kind"], each["runs_on"], each["state"] or "-", each["problem"]) for each in document["jobs"]]
    lines += _table(("job", "runs on", "state", "problem"), rows)
    answers = [(f"`{each['id']}`", each["documented"], each["verdict"], each["seen"]) for each in document["answers"]]
    lines += _table(("question", "documented", "answer", "seen"), answers)
    lines += ["## Removed", "", *(f"- {each}" for each in document["removed"] or ["nothing"]), ""]
    lines += ["## Left", "", *(f"- {each}" for each in [*document["left"], *document["always_left"]]), ""]
    return "\n".join(lines)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[" ".join(cell.replace("|", "/").split()) for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (heading, ["---"] * len(heading), *cells)] + [""]
