r"""Text of unknown origin, made harmless for its reader on a terminal, in a mail or in a chat. Pure.

A script's output, a run's name or a failure's reason may hold control sequences. On a terminal they move the cursor,
write the clipboard (OSC 52), name a window or ask it for answers. The controls of bidirectional text show words in
another order than they have. All of them are written out instead, as Python would in a string, such as `\x1b` and
`\u202e`.

Sources: ECMA-48, "Control functions for coded character sets". xterm's "Control sequences". Unicode Standard Annex 9.
"""

from __future__ import annotations

import re
from typing import Final

_SGR: Final = r"\x1b\[[0-9;:]*m"
# C0 but for tab and line feed, DEL, C1; separators of lines and paragraphs; what directs text; halves of a character.
_STEERING: Final = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_HARMFUL: Final = re.compile(f"[{_STEERING}]")
_HARMFUL_OR_SGR: Final = re.compile(f"({_SGR})|[{_STEERING}]")


def printable(text: str, *, colours: bool = False) -> str:
    """Write out the characters that would steer a terminal or a reader's eye.

    Args:
        text: A text of any origin.
        colours: True to keep sequences that choose colours and styles (SGR, `ESC [ ... m`).

    Returns:
        The same text where there is nothing of the kind. Lines end with a line feed alone.
    """
    text = text.replace("\r\n", "\n")
    return (_HARMFUL_OR_SGR if colours else _HARMFUL).sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    if found.lastindex:
        return found[0]
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"
