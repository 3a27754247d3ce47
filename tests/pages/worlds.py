"""The worlds in which the commands of pages run.

A `Machine` is a folder on this machine with real processes. Its outputs are compared without their measured numbers.
`Models` is a deployment on models of AWS, with the records of a fixture and a clock that stands. Its outputs are
compared to the letter.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

from spotkeep_local import lifecycle
from spotkeep_local.capacity import CapacityScript
from spotkeep_local.control import FleetControl, LocalControl
from tests.discarding import discard
from tests.pages.shown import exactly, stable

PROJECT = Path(__file__).parents[2]
_PATIENCE_SECONDS = 600
COLUMNS = 100
"""The width of an output, for pages of 100 characters and more."""


class World(Protocol):
    """A place where commands run, one after the other.

    Attributes:
        folder: The folder where they run.
        form: The part of a line that must be the same.
    """

    folder: Path
    form: Callable[[str], str]

    def run(self, command: str) -> tuple[list[str], int]:
        """Run a command and return its lines on the terminal and its exit code."""
        ...

    def text(self, name: str) -> list[str]:
        """Return the lines of a text, such as a notification."""
        ...

    def end(self) -> None:
        """End what still runs."""
        ...


class Machine:
    """A folder on this machine, a person with an empty home, and a local AWS of its own once a page starts it.

    Args:
        folder: An empty folder.
        capacity: The script of the capacity of runs, which applies from the page's first launch.
    """

    form = staticmethod(stable)

    def __init__(self, folder: Path, *, capacity: Mapping[str, CapacityScript]) -> None:
        self.folder = folder / "digits"
        self._home = folder / "home"
        self._state = folder / "local"
        self._capacity = dict(capacity)
        self.folder.mkdir(parents=True)
        self._home.mkdir()

    def run(self, command: str) -> tuple[list[str], int]:
        # The package of the day is this one.
        command = command.removeprefix("uvx ")
        if command == "spotkeep local up":
            command += f" --port {lifecycle.free_port()}"
        elif self._capacity and "--local launch" in command:
            self._script_capacity()
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self._variables(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        return as_on_pages(done.stdout.decode(), folder=self.folder).splitlines(), done.returncode

    def text(self, name: str) -> list[str]:
        return (self.folder / name).read_text().splitlines()

    def end(self) -> None:
        if (local := lifecycle.status(self._state)) is not None:
            discard(local)

    def _script_capacity(self) -> None:
        local = lifecycle.status(self._state)
        assert local is not None, "the page launches on a local AWS and has not started one"
        for run, script in self._capacity.items():
            LocalControl(local).script_capacity(run=run, script=script)
        self._capacity = {}

    def _variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPOTKEEP_", "AWS_"))}
        return {
            **kept,
            "HOME": str(self._home),
            "COLUMNS": str(COLUMNS),
            "NO_COLOR": "1",
            "TERM": "dumb",
            # As after `activate`. `rehearse -- COMMAND` runs its command in this environment then.
            "VIRTUAL_ENV": sys.prefix,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SPOTKEEP_LOCAL_STATE": str(self._state),
        }


def as_on_pages(text: str, *, folder: Path) -> str:
    """Return an output without the folders of this machine, and with a bucket's name cut."""
    text = text.replace(str(folder.parent / "local" / "rehearsal"), "/home/ada/spotkeep/.spotkeep/rehearsal")
    text = text.replace(str(folder), "/home/ada/digits").replace(str(PROJECT), "/home/ada/spotkeep")
    # A longer folder than the page's is on a line of its own.
    text = re.sub(r"rehearsing in\s+(\S+),\s+in mounts", r"rehearsing in \1, in mounts", text)
    return re.sub(r"(?<=checkpointsbucket)[0-9a-f]+-[0-9a-f]+", "...", text)


class Fleets(Machine):
    """The same with a local AWS that runs. The first instance of `digits-lucky` is taken away after a notice."""

    def __init__(self, folder: Path, *, capacity: Mapping[str, CapacityScript]) -> None:
        super().__init__(folder, capacity=capacity)
        _, exit_code = super().run("spotkeep local up")
        assert exit_code == 0

    def run(self, command: str) -> tuple[list[str], int]:
        if "run=digits-lucky" not in command:
            return super().run(command)
        with ThreadPoolExecutor() as threads:
            taken = threads.submit(self._take_away)
            printed = super().run(command)
            taken.result()
        return printed

    def _take_away(self) -> None:
        local = lifecycle.status(self._state)
        assert local is not None
        ec2 = local.session().client("ec2")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for reservation in ec2.describe_instances()["Reservations"]:
                for instance in (each["InstanceId"] for each in reservation["Instances"]):
                    if "epoch 4" in ec2.get_console_output(InstanceId=instance).get("Output", ""):
                        FleetControl(local).interrupt(instance, notice_seconds=20.0)
                        return
            time.sleep(0.5)


class Operator(Machine):
    """A folder with a local AWS of its own in `.spotkeep/local`, and a shell that keeps its variables."""

    def __init__(self, folder: Path, *, capacity: Mapping[str, CapacityScript]) -> None:
        super().__init__(folder, capacity=capacity)
        self._state = self.folder / ".spotkeep" / "local"
        self._before: list[str] = []
        (self.folder / "token").write_text("a token of a person")

    def run(self, command: str) -> tuple[list[str], int]:
        if "\n" in command and "import" in command:
            command = f"python -c {shlex.quote(command)}"
        # Version 1 of the AWS command line takes blobs as they are, and has no option for it.
        command = command.replace(" --cli-binary-format raw-in-base64-out", "")
        if command.startswith(("eval ", "export ")):
            self._before.append(command)
        return super().run("\n".join([*self._before, command]) if command != "spotkeep local up" else command)


class Deployed(Operator):
    """The same, deployed, as an administrator. `TABLE` is the run table."""

    def __init__(self, folder: Path, *, capacity: Mapping[str, CapacityScript]) -> None:
        super().__init__(folder, capacity=capacity)
        _, exit_code = self.run("spotkeep local up")
        assert exit_code == 0
        self.run('eval "$(spotkeep local env --administrator)"')
        parameter, _ = self.run(
            "aws ssm get-parameter --name /spotkeep/connection --query Parameter.Value --output text"
        )
        self._table = json.loads("".join(parameter))["run_table"]

    def run(self, command: str) -> tuple[list[str], int]:
        return super().run(re.sub(r"\bTABLE\b", getattr(self, "_table", "TABLE"), command))

    def text(self, name: str) -> list[str]:
        document = as_on_pages((self.folder / name).read_text(), folder=self.folder)
        return json.dumps(json.loads(document), indent=2, ensure_ascii=False).splitlines()


_BEFORE_CODE: Final = """
import functools, spotkeep_client
spotkeep_client.Spotkeep = functools.partial(spotkeep_client.Spotkeep, local=True)
spotkeep = spotkeep_client.Spotkeep()
"""
"""The client of a page calls the local AWS, and a block uses the client of the blocks before it."""


class Notebook(Machine):
    """The same with a local AWS that runs, and the code of pages in place of commands."""

    def __init__(self, folder: Path, *, capacity: Mapping[str, CapacityScript]) -> None:
        super().__init__(folder, capacity=capacity)
        _, exit_code = super().run("spotkeep local up")
        assert exit_code == 0

    def run(self, command: str) -> tuple[list[str], int]:
        return super().run(f"MPLBACKEND=Agg python -c {shlex.quote(_BEFORE_CODE + command)}")


_ANSWERS: Final = {"launch": "-y", "pause": "-y", "replay": "-y", "resume": "-yd", "stop": "-y"}
"""The commands that ask a person, who says yes here. No model of a resumed run trains, so it is not followed."""


class Models:
    """A deployment on models of AWS."""

    form = staticmethod(exactly)

    def __init__(self, folder: Path, *, spotkeep: Any, names: Mapping[str, str], texts: Mapping[str, str]) -> None:
        self.folder = folder
        self._texts = texts
        self._spotkeep = spotkeep
        self._names = names

    def run(self, command: str) -> tuple[list[str], int]:
        for name in sorted(self._names, key=len, reverse=True):
            command = re.sub(rf"(?<![\w-]){name}\b", self._names[name], command)
        program, *words = shlex.split(command)
        words += [_ANSWERS[word] for word in words[:2] if word in _ANSWERS and "-y" not in words]
        assert program == "spotkeep", f"this world knows no {program}"
        result = self._spotkeep(*words, columns=COLUMNS)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output.splitlines(), result.exit_code

    def text(self, name: str) -> list[str]:
        return self._texts[name].splitlines()

    def end(self) -> None:
        return


class Texts:
    """Outputs that no command of a page prints, by their names."""

    form = staticmethod(stable)

    def __init__(self, folder: Path, *, texts: Mapping[str, Callable[[Path], str]]) -> None:
        self.folder = folder
        self._texts = texts

    def run(self, command: str) -> tuple[list[str], int]:
        raise ValueError(f"{command}: a page shows this command in a world that has outputs alone")

    def text(self, name: str) -> list[str]:
        folder = self.folder / name
        folder.mkdir()
        return self._texts[name](folder).splitlines()

    def end(self) -> None:
        return


def notifications_in(snapshots: str) -> dict[str, str]:
    """Return the notifications of a file of syrupy as mail, by the names of their tests, with hyphens for spaces."""
    mails = {}
    for name, entry in re.findall(r"^# name: ([^\n]*)\n(.*?)^# ---$", snapshots, flags=re.MULTILINE | re.DOTALL):
        if body := re.search(r"^ *'''\n(.*?)^ *'''", entry, flags=re.MULTILINE | re.DOTALL):
            subject = re.match(r" *tuple\(\n *'(.*)',\n", entry)
            mail = (f"Subject: {subject[1]}\n\n" if subject else "") + textwrap.dedent(body[1])
            mails[name.rpartition(".")[2].replace(" ", "-")] = mail
    return mails


def copy_example(name: str, folder: Path) -> None:
    """Copy the files of an example of the repository, or of these tests."""
    examples = PROJECT / "examples" / name, Path(__file__).parent / "examples" / name
    for path in next(each for each in examples if each.exists()).iterdir():
        if path.is_file():
            shutil.copy(path, folder)
