"""Experiment templates and experiments: values. Times are epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """Of an experiment and of its actions."""

    PENDING = "pending"
    INITIATING = "initiating"
    RUNNING = "running"
    COMPLETED = "completed"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def ended(self) -> bool:
        """Whether nothing more happens."""
        return self in (Status.COMPLETED, Status.STOPPED, Status.FAILED, Status.SKIPPED)


@dataclass(frozen=True, kw_only=True)
class Template:
    """An experiment template; `request` is the CreateExperimentTemplate request, with later updates in it."""

    template_id: str
    arn: str
    request: dict[str, Any]
    created_at: float
    updated_at: float
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ActionState:
    """One action of an experiment.

    Attributes:
        notice_at: When its instances are told that they are taken away.
        ends_at: When they are.
        noticed: They were told.
    """

    status: Status = Status.PENDING
    reason: str = ""
    instance_ids: tuple[str, ...] = ()
    started_at: float | None = None
    notice_at: float | None = None
    ends_at: float | None = None
    noticed: bool = False


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment; `template` is the template's request as it was at the start."""

    experiment_id: str
    arn: str
    template_id: str
    template: dict[str, Any]
    client_token: str
    created_at: float
    status: Status = Status.PENDING
    reason: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    actions: dict[str, ActionState] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
