"""A page as a person sees it, in headless Chromium over its DevTools protocol, and axe-core's judgement on it.

The protocol goes over two pipes. No port is opened, and no package is needed but Chromium itself.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spotkeep_local.cdk import npm_package

SCREENSHOTS = Path(__file__).parent.parent / ".spotkeep" / "screenshots"
"""The folder of the pictures that tests take. A person looks at them."""
WIDTHS = (390, 1280)
"""The widths of a telephone and of a laptop, in CSS pixels."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LONGEST_PAGE = 16_000
"""The most pixels that a picture is high. Chromium's limit is about 16,384."""
# What looks different to a person who sees, hears or types otherwise; `best-practice` has landmarks and headings.
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_AXE = """axe.run(document, {runOnly: {type: 'tag', values: %s}}).then(found => found.violations.map(
  each => each.id + ': ' + each.help + ': ' + each.nodes.slice(0, 3).map(
    node => node.target.join(' ') + ' (' + (node.any.concat(node.all, node.none)[0] || {message: ''}).message + ')'
  ).join('; ')))"""
_TOO_WIDE = """[...document.querySelectorAll('body *')].filter(each => {
  const box = each.getBoundingClientRect(), wide = document.documentElement.clientWidth + 1;
  for (let up = each.parentElement; up; up = up.parentElement)
    if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(up).overflowX)) return false;
  return box.width && box.right > wide;
}).slice(0, 5).map(each => each.outerHTML.slice(0, 120))"""


@dataclass
class Seen:
    """A page at one width, in one colour scheme.

    Attributes:
        screenshot: The picture of the whole page.
        axe: A line for each rule of axe-core that the page breaks.
        too_wide: Elements that reach beyond the right edge.
        scroll_width: The width that the page takes.
        requests: Addresses that the page asked for, beside its own file.
        complaints: Errors that Chromium logged, a violation of the page's policy among them.
        text: The text that a person reads.
    """

    screenshot: Path
    axe: list[str]
    too_wide: list[str]
    scroll_width: int
    requests: list[str]
    complaints: list[str]
    text: str


@dataclass
class Browser:
    """One Chromium. `open_page` opens a page in it, and `check` asserts that everybody can read one.

    Attributes:
        process: Its process.
    """

    process: subprocess.Popen[bytes]
    _to: int
    _from: int
    _number: int = 0
    _unread: bytes = b""
    _events: list[dict[str, Any]] = field(default_factory=list)

    @contextlib.contextmanager
    def open_page(self, page: Path | str, *, name: str, scripts: bool = False) -> Iterator[OpenPage]:
        """Open a page, and close it at the end.

        Args:
            page: A file, or an address on loopback.
            name: The name of its pictures, without the width and the colours.
            scripts: True to let the page run its own scripts.
        """
        address = page.resolve().as_uri() if isinstance(page, Path) else page
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        try:
            for domain in ("Page", "Network", "Log", "Runtime"):
                self.call(f"{domain}.enable", session=session)
            self.call("Emulation.setScriptExecutionDisabled", session=session, value=not scripts)
            self._events.clear()
            answer = self.call("Page.navigate", session=session, url=address)
            assert "errorText" not in answer, answer
            while not any(each["method"] == "Page.loadEventFired" for each in self._events):
                self._events.append(self._read())
            # axe-core is no part of the page. Scripts that the page holds do not run any more.
            self.call("Emulation.setScriptExecutionDisabled", session=session, value=False)
            opened = OpenPage(browser=self, session=session, address=address, name=name)
            opened.value(f"{_axe_core()}; true")
            yield opened
        finally:
            self.call("Target.closeTarget", targetId=target)

    def check(self, page: Path | str, *, name: str, scripts: bool = False) -> list[Seen]:
        """Look at a page at both widths, light and dark, and assert that everybody can read it.

        Args:
            page: A file, or an address on loopback.
            name: The name of its pictures.
            scripts: True to let the page run its own scripts.

        Returns:
            The page as it was seen each time.
        """
        every = []
        with self.open_page(page, name=name, scripts=scripts) as opened:
            for width, dark in itertools.product(WIDTHS, (False, True)):
                seen = opened.look(width=width, dark=dark)
                found = [*seen.axe, *(f"beyond the right edge: {each}" for each in seen.too_wide), *seen.complaints]
                if seen.scroll_width > width:
                    found.append(f"the page is {seen.scroll_width} pixels wide")
                assert not found, "\n".join([seen.screenshot.name, *found])
                every.append(seen)
        return every

    def call(self, method: str, *, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol, and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._to, content) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self._events.append(answer)

    def events(self, method: str, *, session: str) -> list[dict[str, Any]]:
        """Return the parameters of a page's events of one kind, since it was opened."""
        of_it = (each for each in self._events if each.get("sessionId") == session)
        return [each["params"] for each in of_it if each["method"] == method]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            part = os.read(self._from, 1 << 20)
            assert part, "Chromium has ended"
            self._unread += part
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))


@dataclass
class OpenPage:
    """An open page.

    Attributes:
        browser: Its browser.
        session: The session of the protocol that is its own.
        address: Its address.
        name: The name of its pictures.
    """

    browser: Browser
    session: str
    address: str
    name: str

    def look(self, *, width: int, dark: bool = False, printed: bool = False, height: int = 900) -> Seen:
        """Take a picture of the page and let axe-core judge it.

        Args:
            width: The width of the window, in CSS pixels.
            dark: True for a reader who prefers dark pages.
            printed: True for the page as it is printed.
            height: The height of the window, in CSS pixels.
        """
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self._call("Emulation.setEmulatedMedia", media="print" if printed else "", features=[scheme, still])
        tall = self.value("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": min(tall, _LONGEST_PAGE), "scale": 1}
        taken = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        colours = "print" if printed else "dark" if dark else "light"
        screenshot = SCREENSHOTS / f"{self.name}-{width}-{colours}.png"
        screenshot.parent.mkdir(parents=True, exist_ok=True)
        screenshot.write_bytes(base64.b64decode(taken["data"]))
        asked_for = [
            each["request"]["url"] for each in self.browser.events("Network.requestWillBeSent", session=self.session)
        ]
        logged = [each["entry"] for each in self.browser.events("Log.entryAdded", session=self.session)]
        return Seen(
            screenshot=screenshot,
            axe=self.value(_AXE % json.dumps(_RULES)),
            too_wide=self.value(_TOO_WIDE),
            scroll_width=self.value("document.documentElement.scrollWidth"),
            requests=[url for url in asked_for if url.partition("#")[0] != self.address.partition("#")[0]],
            complaints=[entry["text"] for entry in logged if entry["level"] in {"error", "warning"}],
            text=self.value("document.body.innerText"),
        )

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, session=self.session, **parameters)


def _axe_core() -> str:
    return (npm_package("axe-core") / "axe.min.js").read_text(encoding="utf-8")


def chromium() -> str | None:
    """Return the path of Chromium. `SPOTKEEP_CHROMIUM` names another one. None where there is none."""
    named = os.environ.get("SPOTKEEP_CHROMIUM")
    return named or next((found for name in _NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a running Chromium. The test is skipped where none is installed, unless `SPOTKEEP_CHROMIUM` names one."""
    program = chromium()
    if program is None:
        pytest.skip("Chromium is not installed here. On Debian: apt-get install chromium")
    with running(program) as started:
        yield started


@contextlib.contextmanager
def running(program: str) -> Iterator[Browser]:
    """Start Chromium, and end it."""
    assert Path(program).is_file(), f"there is no Chromium at {program}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        started = _started(program, profile=profile)
        try:
            yield started
        finally:
            os.close(started._to)
            os.killpg(started.process.pid, signal.SIGKILL)
            started.process.wait()
            os.close(started._from)


def _started(program: str, *, profile: str) -> Browser:
    its_input, ours_out = os.pipe()
    ours_in, its_output = os.pipe()

    def give_pipes() -> None:
        # Chromium reads at 3 and writes at 4. Copies first: one of the pipes may have that very number.
        reading, writing = os.dup(its_input), os.dup(its_output)
        reading, writing = _beyond(reading), _beyond(writing)
        os.dup2(reading, 3)
        os.dup2(writing, 4)

    process = subprocess.Popen(
        [
            program,
            "--headless",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-gpu",
            "--font-render-hinting=none",
            "--force-color-profile=srgb",
            "--hide-scrollbars",
            "--no-default-browser-check",
            "--no-first-run",
            # Root has no sandbox. The pages are our own.
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            "about:blank",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=False,
        preexec_fn=give_pipes,
        start_new_session=True,
    )
    os.close(its_input)
    os.close(its_output)
    return Browser(process=process, _to=ours_out, _from=ours_in)


def _beyond(number: int) -> int:
    return number if number > 4 else _beyond(os.dup(number))
