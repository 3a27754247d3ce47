"""Experiment templates and experiments: values. Times are epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ExperimentStatus(StrEnum):
    """The status of an experiment."""

    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Template:
    """An experiment template; `request` is the CreateExperimentTemplate request."""

    template_id: str
    request: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment; `template` is the template's request as it was at the start, `error_code` says why it failed."""

    experiment_id: str
    template_id: str
    template: dict[str, Any]
    client_token: str
    created_at: float
    status: ExperimentStatus = ExperimentStatus.RUNNING
    reason: str = ""
    error_code: str | None = None
    ended_at: float | None = None
    tags: dict[str, str] = field(default_factory=dict)
