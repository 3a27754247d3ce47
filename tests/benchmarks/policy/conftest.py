"""Small capacity traces, the same that the planner's tests use."""

from tests.spotkeep_planner.conftest import capacity_with_known_law, trace_of

__all__ = ["capacity_with_known_law", "trace_of"]
