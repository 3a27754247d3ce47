"""The account of a rehearsal, as it is written to ``.spotkeep/rehearsal/``."""

from __future__ import annotations

import abc
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spotkeep_cli.rehearsal.evidence import Check, FileComparison, ReceivedNotification, RunEvidence
from spotkeep_cli.rehearsal.model_files import hash_of_hashes
from spotkeep_cli.rehearsal.verdict import Verdict
from spotkeep_jobs.record.record import Run
from spotkeep_local.account import price_list
from spotkeep_local.iam.report import IdentityReport
from spotkeep_local.iam.uses import JudgingTime


@dataclass(frozen=True, kw_only=True)
class Report(abc.ABC):
    """What a rehearsal found, as a JSON document.

    Attributes:
        seconds: Wall-clock seconds by stage; the engine adds them.
        permissions: What each role and user called, and what was denied; the engine adds them.
        judging: What deciding about it took; the engine adds it.
    """

    permissions: Sequence[IdentityReport] = ()
    judging: JudgingTime | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    @abc.abstractmethod
    def passed(self) -> bool:
        """Whether the verdict is good."""

    @property
    def missing_module(self) -> str | None:
        """The Python module without which the script could not be judged."""
        return None

    @property
    def fails_alone(self) -> bool:
        """Whether the script failed though nothing was taken from it."""
        return False

    @abc.abstractmethod
    def to_document(self) -> dict[str, Any]:
        """Return the report as the JSON document that programs read."""

    def rounded_seconds(self) -> dict[str, float]:
        """Return the seconds by stage, to the millisecond."""
        return {stage: round(seconds, 3) for stage, seconds in self.seconds.items()}

    def write(self, path: Path) -> None:
        """Write the report as indented JSON, and make its folder where there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_document(), indent=2) + "\n")


@dataclass(frozen=True, kw_only=True)
class CheckedReport(Report):
    """What a rehearsal found that is judged by checks alone.

    Attributes:
        checks: What was judged.
    """

    checks: Sequence[Check]

    @property
    def passed(self) -> bool:
        """Whether every check did."""
        return all(check.passed for check in self.checks)


@dataclass(frozen=True, kw_only=True)
class InterruptionReport(Report):
    """What a rehearsal found of a run that lost its capacity, beside the same job left alone.

    Attributes:
        verdict: The judgement and its reasons.
        run: What became of the interrupted run.
        reference: What became of the run left alone.
        notifications: What the subscriber received, in the order of arrival.
        compared: The files of both models whose bytes differ, compared by value.
        record: The interrupted run's record, with its account of the cost.
    """

    verdict: Verdict
    run: RunEvidence
    reference: RunEvidence
    notifications: Sequence[ReceivedNotification]
    compared: Sequence[FileComparison]
    record: Run

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the run."""
        return self.verdict.passed

    @property
    def missing_module(self) -> str | None:
        """The Python module without which the script could not be judged."""
        return self.verdict.missing_module

    @property
    def fails_alone(self) -> bool:
        """Whether the script failed though nothing was taken from it."""
        return self.verdict.fails_alone

    def to_document(self) -> dict[str, Any]:
        """Return the report as the JSON document that programs read."""
        return {
            "verdict": "not judged" if self.missing_module else "pass" if self.passed else "fail",
            "missing_module": self.missing_module,
            "reasons": list(self.verdict.reasons),
            "run": self.run.run,
            "reference_run": self.reference.run,
            "attempts": self.run.attempts,
            "interruptions": [asdict(interruption) for interruption in self.verdict.interruptions],
            "identical_to_uninterrupted": self.verdict.identical_to_uninterrupted,
            "equal_to_uninterrupted": self.verdict.equal_to_uninterrupted,
            "remarks": list(self.verdict.remarks),
            "compared_by_value": [asdict(each) for each in self.compared],
            "model_sha256": {
                "run": hash_of_hashes(self.run.model_files),
                "uninterrupted": hash_of_hashes(self.reference.model_files),
            },
            "notifications": [asdict(notification) for notification in self.notifications],
            "cost": self.record.cost.model_dump(mode="json") if self.record.cost else None,
            "prices": price_list.ORIGIN,
            "seconds": self.rounded_seconds(),
        }
