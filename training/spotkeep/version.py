"""The library's version, apart from everything else so that every module may name it."""

from __future__ import annotations

__version__ = "0.1.0"
