"""The kinds of isolation of a local host from the machine.

It is a module apart from the options, so that a command's help loads no pydantic.
"""

from __future__ import annotations

from enum import StrEnum


class Isolation(StrEnum):
    """The kind of isolation of a local training job or instance from the machine."""

    AUTO = "auto"
    """A private mount namespace where the machine allows one, a relocated base directory elsewhere."""
    NAMESPACE = "namespace"
    """Always a private mount namespace. Starting a job fails where the machine refuses it."""
    RELOCATED = "relocated"
    """Always a relocated base directory, named to the job by `SAGEMAKER_BASE_DIR`."""
