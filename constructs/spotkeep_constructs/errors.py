"""Errors of constructs, raised at synth, before anything reaches AWS.

ConstructError
├── PropertyError     a construct was given a property that cannot be deployed
└── LayerBuildError   the functions' dependencies could not be bundled
"""

from __future__ import annotations


class ConstructError(Exception):
    """Base of everything these constructs raise."""


class PropertyError(ConstructError):
    """A construct's property is wrong.

    Args:
        name: The property, as `Construct.property`.
        problem: The fault of the value.
        found: The value.
        fix: The step that mends it.
    """

    def __init__(self, *, name: str, problem: str, found: object, fix: str) -> None:
        super().__init__(f"{name} {problem} (found {found!r}). {fix}")
        self.name = name


class LayerBuildError(ConstructError):
    """Bundling the locked dependencies failed. The message holds the tool's own words and the way out."""
