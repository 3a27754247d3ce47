"""The account of a rehearsal, as it is written to ``.spotkeep/rehearsal/report.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spotkeep_jobs.facts.record import Run
from spotkeep_local import price_list
from spotkeep_rehearsal.evidence import FileComparison, ReceivedNotification, RunEvidence
from spotkeep_rehearsal.model_archive import hash_of_hashes
from spotkeep_rehearsal.report_file import WrittenReport
from spotkeep_rehearsal.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Report(WrittenReport):
    """Everything a rehearsal found.

    Attributes:
        verdict: The judgement and its reasons.
        run: What became of the interrupted run.
        reference: What became of the run left alone.
        notifications: What the subscriber received, in the order of arrival.
        compared: The files of both models whose bytes differ, compared by value.
        head: The interrupted run's record, with its account of the cost.
        seconds: Wall-clock seconds by stage.
    """

    verdict: Verdict
    run: RunEvidence
    reference: RunEvidence
    notifications: Sequence[ReceivedNotification]
    compared: Sequence[FileComparison]
    head: Run
    seconds: Mapping[str, float]

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the run."""
        return self.verdict.passed

    @property
    def missing_module(self) -> str | None:
        """The Python module without which the script could not be judged."""
        return self.verdict.missing_module

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
            "cost": self.head.cost.model_dump(mode="json") if self.head.cost else None,
            "prices": price_list.ORIGIN,
            "seconds": {stage: round(seconds, 3) for stage, seconds in self.seconds.items()},
        }
