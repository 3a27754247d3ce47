"""The fixtures of a deployment on models of AWS."""

from __future__ import annotations

from tests.spotkeep_jobs.conftest import make, world

__all__ = ["make", "world"]
