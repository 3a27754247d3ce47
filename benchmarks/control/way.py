"""Counts the way of one launch and of one event through the functions' modules (``python -m benchmarks.control.way``).

A call from one module into another one enters it. A module that is entered again is returned to. Counted are the
modules of the functions, on the models of AWS that the stories use. A launch is one of managed spot, the event is the
first of its training job, and the ending the last. `--modules` lists how often each module is entered.
"""

from __future__ import annotations

import argparse
import dis
import functools
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from tests.torture.control.story import ControlPlaneStory

LAMBDA: Final = Path(__file__).parents[2] / "lambda"


@dataclass(frozen=True, kw_only=True)
class Way:
    """The way of one call.

    Attributes:
        entries: Number of entries, by module.
    """

    entries: Counter[str]

    @property
    def modules(self) -> int:
        """Number of modules that it passed."""
        return len(self.entries)

    @property
    def returns(self) -> int:
        """Number of entries into a module that it had entered before."""
        return self.entries.total() - self.modules


def way_of(act: Callable[[], object]) -> Way:
    """Call `act` and count the entries into modules of the functions."""
    entries: Counter[str] = Counter()
    of_thread: defaultdict[int, list[str | None]] = defaultdict(list)  # A story runs each function in its own thread.

    def watch(frame: FrameType, event: str, _argument: object) -> None:
        modules = of_thread[threading.get_ident()]
        if event == "call":
            module = _module_of(frame.f_code.co_filename)
            above = modules[-1] if modules else None
            begins = frame.f_lasti <= _begins_at(frame.f_code)  # A generator that goes on was entered before.
            if module is not None and module != above and begins and frame.f_code.co_name != "<module>":
                entries[module] += 1
            modules.append(module or above)
        elif event == "return" and modules:
            modules.pop()

    threading.setprofile(watch)
    try:
        act()
    finally:
        threading.setprofile(None)
    return Way(entries=entries)


@functools.cache
def _module_of(filename: str) -> str | None:
    path = Path(filename)
    return str(path.relative_to(LAMBDA)) if path.is_relative_to(LAMBDA) else None


@functools.cache
def _begins_at(code: CodeType) -> int:
    return next((found.offset for found in dis.get_instructions(code) if found.opname == "RESUME"), 0)


def ways() -> dict[str, Way]:
    """Return the ways of a launch, of its job's first event, and of its last."""
    _walk()  # What is made once in a process is made by now.
    return _walk()


def _walk() -> dict[str, Way]:
    story: Any = ControlPlaneStory()
    account = story.service
    for deployment in (story.launcher, story.controller):  # A function makes these once, and not for each event.
        _ = (
            deployment.training_jobs,
            deployment.fleets,
            deployment.queues,
            deployment.policy,
            deployment.logs,
            deployment.fleet_logs,
        )
    found = {"launch": way_of(lambda: story.a_user_launches(name="plain"))}
    job = account.launched[0]
    account.gets_capacity(job)
    found["event"] = way_of(lambda: story.the_last_event_arrives(skew=0))
    account.trains(job, 12)
    account.ends(job, "Completed")
    found["ending"] = way_of(lambda: story.the_last_event_arrives(skew=0))
    return found


def main() -> None:
    """Print the ways."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.control.way")
    parser.add_argument("--modules", action="store_true", help="also list how often each module is entered")
    options = parser.parse_args()
    logging.disable()
    found = ways()
    for name, way in found.items():
        print(f"{name}: {way.modules} modules, {way.returns} returns to one")
        for module, times in way.entries.most_common() if options.modules else ():
            print(f"  {times:5} {module}")


if __name__ == "__main__":
    main()
