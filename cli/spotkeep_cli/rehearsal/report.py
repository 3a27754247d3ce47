"""The accounts of rehearsals, as they are written to ``.spotkeep/rehearsal/``."""

from __future__ import annotations

import abc
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spotkeep_cli.rehearsal.evidence import ReceivedNotification, RehearsalCheck, RunEvidence
from spotkeep_cli.rehearsal.fleet_verdict import FleetEvidence, RehearsedInstance
from spotkeep_cli.rehearsal.model_comparison import hash_of_hashes
from spotkeep_cli.rehearsal.nodes_verdict import NodesEvidence
from spotkeep_cli.rehearsal.permissions import summary_document
from spotkeep_cli.rehearsal.pool_verdict import PoolEvidence
from spotkeep_cli.rehearsal.sweep_verdict import (
    RehearsedTrial,
    SweepEvidence,
    duplicates_of,
    interruptions_of,
    preemptions_of,
)
from spotkeep_cli.rehearsal.verdict import Verdict
from spotkeep_jobs.record.record import Run, ScriptMetrics
from spotkeep_local.account import price_list
from spotkeep_local.iam.report import IdentityReport
from spotkeep_local.iam.uses import JudgingTime
from spotkeep_rehearsal.comparison import FileComparison


@dataclass(frozen=True, kw_only=True)
class Report(abc.ABC):
    """The findings of a rehearsal, as a JSON document.

    Attributes:
        checks: The judged promises.
        seconds: Wall-clock seconds by stage. The engine adds them.
        permissions: The calls and the denials of each role and user. The engine adds them.
        judging: The time that judging permissions took. The engine adds it.
    """

    checks: Sequence[RehearsalCheck] = ()
    permissions: Sequence[IdentityReport] = ()
    judging: JudgingTime | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """True if every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def missing_module(self) -> str | None:
        """The Python module without which the script could not be judged."""
        return None

    @property
    def fails_alone(self) -> bool:
        """True if the script failed although nothing was taken from it."""
        return False

    @property
    def failure(self) -> str | None:
        """The reason of a failure that no interruption caused, in the words of the run's record."""
        return None

    @property
    def reasons(self) -> Sequence[str]:
        """The reasons against the run, beside the checks that did not hold."""
        return ()

    @property
    def remarks(self) -> Sequence[str]:
        """The open questions of a verdict."""
        return ()

    @property
    def failed_checks(self) -> Sequence[RehearsalCheck]:
        """The checks that did not hold."""
        return [check for check in self.checks if not check.passed]

    @property
    @abc.abstractmethod
    def headline(self) -> str:
        """The verdict in a sentence."""

    @abc.abstractmethod
    def findings(self) -> dict[str, Any]:
        """Return the part of the JSON document that only this kind of rehearsal has."""

    def to_document(self) -> dict[str, Any]:
        """Return the report as the JSON document that programs read."""
        return {
            "verdict": "not judged" if self.missing_module else "pass" if self.passed else "fail",
            "checks": [asdict(check) for check in self.checks],
            **self.findings(),
            "permissions": summary_document(self.permissions),
            "seconds": {stage: round(seconds, 3) for stage, seconds in self.seconds.items()},
        }

    def write(self, path: Path) -> None:
        """Write the report as indented JSON, and make its folder where there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_document(), indent=2) + "\n")


@dataclass(frozen=True, kw_only=True)
class InterruptionReport(Report):
    """The findings on a run that lost its capacity, beside the same job left alone.

    Attributes:
        verdict: The judgement and its reasons.
        run: The outcome of the interrupted run.
        reference: The outcome of the run left alone.
        notifications: The notifications that the subscriber received, in the order of arrival.
        compared: The files of both models whose bytes differ, compared by value.
        record: The interrupted run's record, with its account of the cost.
        metrics: The metrics of its script, through all interruptions. None where it logs none.
    """

    verdict: Verdict
    run: RunEvidence
    reference: RunEvidence
    notifications: Sequence[ReceivedNotification]
    compared: Sequence[FileComparison]
    record: Run
    metrics: ScriptMetrics | None = None

    @property
    def passed(self) -> bool:
        """True if nothing speaks against the run, and every check passed."""
        return self.verdict.passed and super().passed

    @property
    def missing_module(self) -> str | None:
        """The Python module without which the script could not be judged."""
        return self.verdict.missing_module

    @property
    def fails_alone(self) -> bool:
        """True if the script failed although nothing was taken from it."""
        return self.verdict.fails_alone

    @property
    def failure(self) -> str | None:
        """The reason of the failure of the run left alone, in the words of its record."""
        return self.reference.failure

    @property
    def reasons(self) -> Sequence[str]:
        """The reasons against the run, beside the checks that did not hold."""
        return self.verdict.reasons

    @property
    def remarks(self) -> Sequence[str]:
        """The open questions of the verdict."""
        return self.verdict.remarks

    @property
    def headline(self) -> str:
        """The verdict on the run in a sentence. The reasons follow the sentence of a failed one."""
        verdict = self.verdict
        if verdict.passed and verdict.equal_to_uninterrupted:
            how = "bit for bit" if verdict.identical_to_uninterrupted else "value for value"
            return f"The final model equals, {how}, that of a run that was left alone."
        if verdict.passed:
            return "The job went on from its own checkpoint after each interruption."
        if self.missing_module:
            return "This job could not begin on this machine:"
        if verdict.fails_alone:
            return "This job does not end well even when nothing is taken from it:"
        if verdict.unproven:
            return "Nothing shows that this job survives on spot capacity:"
        if verdict.only_the_model_differs:
            return "This job goes on after an interruption, and ends with another model than one left alone:"
        return "This job would not survive on spot capacity:"

    @property
    def headline_of_instances(self) -> str | None:
        """The verdict on the instances in a sentence. None where nothing is to be said of them."""
        return None

    def findings(self) -> dict[str, Any]:
        """Return the losses, the models, the notifications and the bill."""
        return {
            "missing_module": self.missing_module,
            "reasons": list(self.verdict.reasons),
            "run": self.run.run,
            "reference_run": self.reference.run,
            "attempts": self.run.attempts,
            "hosts": self.record.place.instance_count,
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
            "metrics": {} if self.metrics is None else self.metrics.model_dump(mode="json")["metrics"],
            "cost": self.record.cost.model_dump(mode="json") if self.record.cost else None,
            "prices": price_list.ORIGIN,
        }


@dataclass(frozen=True, kw_only=True)
class FleetReport(InterruptionReport):
    """The findings of a rehearsal on a fleet, beside those of any run.

    Attributes:
        evidence: The evidence of its checks.
    """

    evidence: FleetEvidence

    @property
    def headline_of_instances(self) -> str | None:
        """The verdict on the fleet in a sentence. None where the run failed and the fleet did not."""
        if self.failed_checks:
            return f"{len(self.failed_checks)} of {len(self.checks)} things that a fleet is for did not hold."
        return "Two instances were lost and nothing else; one volume is left to pay for." if self.passed else None

    def findings(self) -> dict[str, Any]:
        """Return the findings of any run, the instances, and the live resources around them."""
        evidence = self.evidence
        alive = {"before": evidence.before, "trained": evidence.trained, "after": evidence.after}
        return {
            **super().findings(),
            "instances_are": evidence.isolation,
            "instances": [_instance_document(life) for life in evidence.lives],
            "zones": [life.zone for life in evidence.lives],
            **{
                what: {when: dict(getattr(found, what)) for when, found in alive.items()}
                for what in ("fleets", "volumes", "snapshots")
            },
        }


def _instance_document(life: RehearsedInstance) -> dict[str, Any]:
    return {
        "instance": life.instance_id,
        "zone": life.zone,
        "ending": life.process.ending.value,
        "volume": life.volume_id,
        "recovery_s": {phase: round(seconds, 3) for phase, seconds in life.phases_s.items()},
        "calls": dict(life.calls),
        "resumed_from_step": life.process.resumed_from_step,
        "last_step": life.process.last_step,
    }


@dataclass(frozen=True, kw_only=True)
class NodesReport(InterruptionReport):
    """The findings of a rehearsal on several instances, beside those of any run.

    Attributes:
        evidence: The evidence of its checks.
    """

    evidence: NodesEvidence

    @property
    def headline_of_instances(self) -> str | None:
        """The verdict on the worlds in a sentence. None where the run failed and the worlds did not."""
        if self.failed_checks:
            return f"{len(self.failed_checks)} of {len(self.checks)} things that several nodes are for did not hold."
        if not self.passed:
            return None
        sizes = ", ".join(str(len(world.nodes)) for world in self.evidence.worlds)
        return f"Three nodes were lost, and the run went on in worlds of {sizes} nodes."

    def findings(self) -> dict[str, Any]:
        """Return the findings of any run, and the worlds."""
        repeated = [loss.steps_repeated or 0 for loss in self.verdict.interruptions]
        return {**super().findings(), **self.evidence.to_document(), "steps_repeated": sum(repeated)}


@dataclass(frozen=True, kw_only=True)
class PoolReport(Report):
    """The findings of a rehearsal of a warm pool.

    Attributes:
        evidence: The evidence of its checks.
        faster: The factor by which time ran faster.
    """

    evidence: PoolEvidence
    faster: float

    @property
    def headline(self) -> str:
        """The verdict in a sentence."""
        gain = self.evidence.first.seconds - self.evidence.second.seconds
        passed = f"The second job started {gain:.1f} s sooner, and each ending was notified once."
        return passed if self.passed else _not_held(self)

    def findings(self) -> dict[str, Any]:
        """Return the starts of both jobs, their pools and their bills."""
        evidence = self.evidence
        return {
            "faster": self.faster,
            "start_seconds": {"new_host": evidence.first.seconds, "kept_host": evidence.second.seconds},
            "jobs": [asdict(evidence.first), asdict(evidence.second)],
            "pools": [pool.model_dump(mode="json") for pool in (evidence.first_pool, evidence.second_pool)],
            "costs": [
                run.cost.model_dump(mode="json") if run.cost else None
                for run in (evidence.first_run, evidence.second_run)
            ],
            "extended_seconds": evidence.extended_seconds,
            "notifications": [asdict(notification) for notification in evidence.notifications],
        }


@dataclass(frozen=True, kw_only=True)
class SweepReport(Report):
    """The findings of a rehearsal of a sweep.

    Attributes:
        evidence: The evidence of its checks.
        seed: The seed of the random interruptions.
    """

    evidence: SweepEvidence
    seed: int

    @property
    def headline(self) -> str:
        """The verdict in a sentence."""
        passed = "Each trial's curve equals, step for step, that of the same trial left alone."
        return passed if self.passed else _not_held(self)

    def findings(self) -> dict[str, Any]:
        """Return the interruptions of the trials, and each trial's curve."""
        evidence = self.evidence
        sweep = evidence.sweep
        return {
            "reasons": [f"{check.expected}; found: {check.found}" for check in self.checks if not check.passed],
            "sweep": sweep.sweep,
            "trials": len(evidence.trials),
            "preemptions": preemptions_of(evidence.trials),
            "interruptions": interruptions_of(evidence.trials),
            "ended_invocations": evidence.ended_invocations,
            "seed": self.seed,
            "identical_to_uninterrupted": sum(each.is_identical for each in evidence.trials),
            "duplicates": duplicates_of(evidence),
            "calls": asdict(evidence.calls),
            "best": None if sweep.best is None else sweep.best.model_dump(mode="json"),
            "cost": None if sweep.cost is None else sweep.cost.model_dump(mode="json"),
            "prices": price_list.ORIGIN,
            "curves": [_curve_document(each) for each in evidence.trials],
        }


def _not_held(report: Report) -> str:
    return f"{len(report.failed_checks)} of {len(report.checks)} did not hold."


def _curve_document(each: RehearsedTrial) -> dict[str, Any]:
    return {
        "number": each.trial.number,
        "state": each.trial.state.value,
        "parameters": each.trial.parameters,
        "training_jobs": [job.name for job in each.jobs],
        "interruptions": each.interruptions,
        "preemptions": each.preemptions,
        "steps": max(each.curve, default=0),
        "identical": each.is_identical,
    }
