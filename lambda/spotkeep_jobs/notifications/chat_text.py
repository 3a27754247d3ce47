"""Text of unknown origin for chats, which read it as Markdown and more: what has a meaning there is replaced. Pure.

Slack and Teams differ in how a character is escaped, and both get the same message. So a character with a meaning gives
way to one that looks like it and has none.

Sources: https://docs.slack.dev/messaging/formatting-message-text ; "Format text in Microsoft Teams" ; CommonMark 0.31.
"""

from __future__ import annotations

import re
from typing import Final

from spotkeep_jobs.printable_text import printable

_LOOK_ALIKES: Final = str.maketrans({"`": "\u02cb", "<": "\u2039", ">": "\u203a"})
_LINK: Final = re.compile(r"\](?=[(\[:])")
_EVERYBODY: Final = re.compile(r"@(?=(?:channel|here|everyone|group|team|all)\b)", re.IGNORECASE)


def chat_text(text: str) -> str:
    """Return a text that ends no code block, places no link, mentions no person and steers no terminal.

    A bare address stays one, and a chat may make it clickable: it shows where it leads.
    """
    harmless = printable(text).translate(_LOOK_ALIKES)
    return _EVERYBODY.sub("\uff20", _LINK.sub("] ", harmless))
