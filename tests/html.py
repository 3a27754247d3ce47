"""A page as its tags and its text, and a text that would be markup."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = (
    "</title></style></svg></pre>'\"><script>document.title='owned'</script><img src=https://x.invalid/a onerror=x>"
    "\x1b[31m\u202e&amp;"
)
"""A name that would be markup, a control sequence and another order of reading."""
WRITTEN_OUT = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
"""The same text as a page shows it."""


class Parsed(HTMLParser):
    """The tags and the text of a page.

    Attributes:
        tags: Each element, with its attributes.
        text: The text of all elements but the style sheet.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.lasttag != "style":
            self.text += data

    @property
    def names(self) -> list[str]:
        """The names of the elements, in their order."""
        return [tag for tag, _ in self.tags]


def assert_harmless(page: str, *, plain: str) -> None:
    """Assert that a page full of hostile texts has the elements of the same page without them.

    Args:
        page: The page with `HOSTILE`.
        plain: The page with a text of plain letters in its place.
    """
    parsed = Parsed(page)
    assert parsed.names == Parsed(plain).names
    assert "script" not in parsed.names
    assert not {name for _, attributes in parsed.tags for name in attributes if name.startswith("on")}
    assert not [character for character in "\x1b\u202e" if character in page]
    assert WRITTEN_OUT in parsed.text
