"""What every test stands on: a harmless AWS environment, the checkout's tools on PATH, and a local AWS."""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from spotkeep_constructs.archives import python_sources, sha256
from spotkeep_local import lifecycle
from spotkeep_local.options import ServerOptions
from tests.answers import check_every_answer
from tests.browser import browser  # noqa: F401 - a fixture
from tests.discarding import discard
from tests.forked_scripts import make_runs  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _pytest.terminal import TerminalReporter
    from xdist.remote import Producer

# How long an example takes, or is drawn, says more about the machine's other work than about the code. Fifty examples,
# new ones each time, find what a change broke; `--hypothesis-profile=thorough` asks for twenty times as many.
# Where `CI` is set, Hypothesis draws the same ones each time. So a test that draws until it meets something names its
# seeds.
_UNTIMED = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("every-change", _UNTIMED, max_examples=50)
hypothesis.settings.register_profile("thorough", _UNTIMED, max_examples=1000)
# A mutant meets the same few examples each time. One process runs a test again and again, with an object for each time.
hypothesis.settings.register_profile(
    "mutant",
    _UNTIMED,
    max_examples=20,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.differing_executors],
)
hypothesis.settings.load_profile("every-change")

_TOOLS = Path(sys.prefix) / "bin"
_STATE = Path(__file__).parent.parent / ".spotkeep"
_CACHES = _STATE / "cache"
_SCRATCH = _STATE / "tests"
_MADE_ONCE = ("tests/infrastructure/",)
_EACH_ALONE = ("tests/end_to_end/test_rehearsal.py", "tests/end_to_end/test_destroy.py")
"""Files of tests that take a minute or more each, and share nothing but the deployment."""
_LONG_SECONDS = 3
_OBJECTS_UNTIL_GARBAGE = 50_000
_LONGEST_FOR_SOCKETS = 64
"""A Unix socket's path has 104 bytes; what makes one in here adds up to 40."""


def _harmless_environment() -> dict[str, str]:
    """Credentials of no account, so that a test that forgot its endpoint cannot reach an account; one thread each.

    Arrays and models are tiny. Threads of NumPy, TensorFlow and XGBoost that wait for each other take a quarter to a
    half of the processor time.
    """
    return {
        "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "PATH": f"{_TOOLS}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }


def _use_harmless_environment() -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(_harmless_environment())
    _write_inside_the_checkout()
    # Unpacking the CDK's library takes seconds: once a checkout, not once a test.
    os.environ["JSII_RUNTIME_PACKAGE_CACHE_ROOT"] = str(_CACHES / "jsii")
    os.environ["UV_CACHE_DIR"] = str(_CACHES / "uv")


def _write_inside_the_checkout() -> None:
    """Nothing is written outside the checkout, by the tests or by what they start, however they are started."""
    home, temporary = _SCRATCH / "home", _SCRATCH / "tmp"
    for directory in (home, temporary):
        directory.mkdir(parents=True, exist_ok=True)
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    os.environ["HOME"] = str(home)
    # What lies in there is no part of this repository.
    os.environ["GIT_CEILING_DIRECTORIES"] = str(_SCRATCH)
    if len(str(temporary)) <= _LONGEST_FOR_SOCKETS or find_spec("torch") is None:
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    else:
        # The workers of a torch DataLoader talk through Unix sockets in the temporary directory.
        os.environ.pop("TMPDIR", None)


# While this file is imported, because the conftest files below it are imported before any hook runs, and some of them
# import the CDK, which looks for node on PATH at that moment.
_use_harmless_environment()
check_every_answer()

# What is imported from here on stays to the end: looking for garbage in it takes time and finds none, now and in every
# whole collection that a framework asks for later.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    # Python would look after 700 objects. Tests make and drop thousands, and hardly any has to be looked for.
    gc.set_threshold(_OBJECTS_UNTIL_GARBAGE)
    gc.enable()


def _unit_of(nodeid: str) -> str:
    """What goes to one worker as a whole: a file, a test, or a folder whose tests share what takes seconds to make."""
    if nodeid.startswith(_EACH_ALONE):
        return nodeid
    folder = next((folder for folder in _MADE_ONCE if nodeid.startswith(folder)), None)
    return folder or nodeid.partition("::")[0]


class _Units(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return _unit_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Units of work go to workers in the order of collection."""
    config.option.loadscopereorder = False
    return _Units(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort long units to the front: one that begins last keeps its worker busy while the others have nothing to do.

    Tests that need a deployed app wait for its deployment, so they come before all others, of these first those that
    take minutes. Then come the folders whose tests share what takes seconds to make: what tests elsewhere need of it is
    there by then.
    """
    long = Counter(_unit_of(item.nodeid) for item in items if item.get_closest_marker("long"))
    deployed = {_unit_of(item.nodeid) for item in items if "deployment" in getattr(item, "fixturenames", ())}

    def place(item: pytest.Item) -> tuple[bool, bool, bool, int]:
        unit = _unit_of(item.nodeid)
        return unit not in deployed, unit not in _MADE_ONCE, not unit.startswith(_EACH_ALONE), -long[unit]

    items.sort(key=place)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """List the tests that are not marked as long and took long, so that `make test` stays short."""
    took: defaultdict[str, float] = defaultdict(float)
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport) and not report.keywords.keys() & {"long", "torch"}:
            took[report.nodeid] += report.duration
    found = {test: seconds for test, seconds in took.items() if seconds > _LONG_SECONDS}
    if found:
        terminalreporter.section(f"longer than {_LONG_SECONDS} s, and not marked as long")
        terminalreporter.line("A fixture that tests share counts for the first of them on each worker.")
        for test, seconds in sorted(found.items(), key=lambda one: -one[1]):
            terminalreporter.line(f"{seconds:6.1f} s  {test}")


def _sources_hash() -> str:
    """Hash what templates and deployments are made of, and what makes them."""
    project = Path(__file__).parent.parent
    alone = ("app.py", "cdk.json", "pyproject.toml", "package-lock.json")
    files = {path: path.read_bytes() for path in (*map(project.joinpath, alone), *project.glob("tests/**/conftest.py"))}
    for folder in ("cli", "constructs", "lambda", "local", "locks", "planner", "stacks", "training"):
        files |= {Path(name): content for name, content in python_sources(project / folder).items()}
    return sha256(*(part for path in sorted(files) for part in (str(path), files[path])))[:16]


@pytest.fixture(scope="session")
def shared_directory() -> Callable[[str, Callable[[Path], object]], Path]:
    """Have a directory filled once for all workers; another worker that wants it waits until it is.

    It lasts until `make test` begins anew, or the sources change: `make test-all` deploys once, and not once more for
    the long tests.
    """
    made = _SCRATCH / "made" / _sources_hash()
    made.mkdir(parents=True, exist_ok=True)

    def make(name: str, fill: Callable[[Path], object]) -> Path:
        directory, done = made / name, made / f"{name}.done"
        with (made / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(directory, ignore_errors=True)
                directory.mkdir()
                fill(directory)
                done.touch()
        return directory

    return make


@pytest.fixture(scope="session")
def local_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lifecycle.LocalAws]:
    """A running local AWS, one for each xdist worker, on a free port and in a directory of its own."""
    state_dir = tmp_path_factory.mktemp("local-aws")
    running = lifecycle.start(state_dir, port=lifecycle.free_port(), options=ServerOptions.fast())
    yield running
    discard(running)
