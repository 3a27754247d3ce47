"""Text of unknown origin, made harmless: what a checkpoint is named or holds must not steer a terminal."""

from __future__ import annotations


def printable(text: str, *, longest: int | None = None) -> str:
    """Writes out what is not printable, as Python would in a string, and shortens what is longer than it may be."""
    if longest is not None and len(text) > longest:
        text = f"{text[: longest - 1]}…"
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )
