"""What every rehearsal's command does around the rehearsal: judge the job file, show, report, say what is next."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from spotkeep_cli.connection import INSTALLED_FROM, app_directory, local_state_directory, project_directory
from spotkeep_cli.errors import (
    LocalFailureError,
    MissingModuleError,
    RehearsalFailedError,
    RehearsalNotJudgedError,
    UsageError,
)
from spotkeep_cli.judgement import PLACEHOLDER_BUCKET, judge_here
from spotkeep_cli.launcher_answer import refused
from spotkeep_cli.preparation import prepare
from spotkeep_cli.rendering.rehearsal_view import RehearsalView
from spotkeep_cli.shell_path import activation
from spotkeep_cli.termination import unwinding_on_sigterm
from spotkeep_local.errors import LocalAwsError
from spotkeep_rehearsal.errors import RehearsalError, RehearsedRunFailedError
from spotkeep_rehearsal.verdict import missing_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import RenderableType

    from spotkeep_cli.job_file import JobDocument
    from spotkeep_cli.seams import Invocation
    from spotkeep_cli.terminal import NextStep, Terminal
    from spotkeep_rehearsal.report_file import WrittenReport

_SET_UP_BY_MAKE = frozenset({"torch", "keras", "lightning", "transformers", "accelerate"})
_PACKAGES = {"PIL": "pillow", "cv2": "opencv-python-headless", "sklearn": "scikit-learn", "yaml": "pyyaml"}
"""Packages whose name is not that of their module."""
ReportT = TypeVar("ReportT", bound="WrittenReport")


@dataclass(frozen=True, kw_only=True)
class Rehearsing:
    """One rehearsal of one job file.

    Attributes:
        invocation: How the command was called.
        terminal: Where it shows what it does.
        document: The job file, as it is rehearsed.
    """

    invocation: Invocation
    terminal: Terminal
    document: JobDocument

    def plan_fields(self) -> dict[str, Any]:
        """What every plan of a rehearsal begins with.

        Raises:
            RefusedError: The job file has problems; carries every one that can be found here, with its line.
            UsageError: There is no app to deploy.
        """
        new_token = self.invocation.seams.new_token
        prepared = prepare(self.document, checkpoint_bucket=PLACEHOLDER_BUCKET, new_token=new_token)
        if problems := judge_here(prepared).problems:
            raise refused(list(problems), what="nothing was rehearsed", document=self.document)
        app = app_directory()
        if app is None:
            raise UsageError(
                "there is no app to deploy: no checkout of Spotkeep is here or above, and this spotkeep was not"
                " installed from one",
                hint="get a checkout, run `make setup` in it, and use its .venv/bin/spotkeep from any folder",
            )
        return {
            "project_dir": app,
            "state_dir": local_state_directory(),
            "name": str(self.document.fields["name"]),
            "deployment": self.invocation.options.deployment,
        }

    def conduct(
        self,
        rehearse: Callable[..., ReportT],
        plan: object,
        *,
        deployment: Callable[..., object],
        parts: Callable[[ReportT], Iterable[RenderableType]],
        report_path: Path,
        failed_hint: str,
        next_steps: Iterable[NextStep],
    ) -> None:
        """Rehearse, and end the command.

        Args:
            rehearse: Takes the plan, a way to the deployed app, and an observer; gives a report.
            plan: What to rehearse.
            deployment: Makes what is rehearsed of the deployed app.
            parts: What a person reads of the report.
            report_path: Where the report is written.
            failed_hint: What to do when it did not pass.
            next_steps: What to do when it did.

        Raises:
            LocalFailureError: The local AWS or the CDK CLI failed.
            RehearsalNotJudgedError: There is no verdict.
            MissingModuleError: The script needs a Python module that is not installed here.
            RehearsalFailedError: It did not pass.
        """
        seams, options = self.invocation.seams, replace(self.invocation.options, local=True)

        def connect(_: object) -> object:
            return deployment(seams.connect(options), document=self.document, new_token=seams.new_token)

        try:
            with RehearsalView(self.terminal.people) as view, unwinding_on_sigterm():
                report = rehearse(plan, connect=connect, observer=view)
        except LocalAwsError as error:
            raise LocalFailureError.of(error) from error
        except RehearsedRunFailedError as error:
            if module := missing_module(error.failure):
                raise _not_installed(module) from error
            raise RehearsalNotJudgedError(str(error), hint=error.hint) from error
        except RehearsalError as error:
            raise RehearsalNotJudgedError(str(error), hint=error.hint) from error
        report.write(report_path)
        if self.terminal.as_json:
            self.terminal.give_json(report.to_document())
        else:
            for part in (*parts(report), "", f"Report: {_from_here(report_path)}"):
                self.terminal.show(part)
        if module := report.missing_module:
            raise _not_installed(module)
        if not report.passed:
            raise RehearsalFailedError("the rehearsal did not pass", hint=failed_hint)
        self.terminal.show_next(*activation(), *next_steps)


def installation(module: str) -> str:
    """How to install a Python module where local jobs find it: in the environment that this command runs in.

    Args:
        module: As scripts import it.
    """
    if module in _SET_UP_BY_MAKE and Path(sys.prefix) == INSTALLED_FROM / ".venv":
        where = "" if Path.cwd() == INSTALLED_FROM else f"-C {shlex.quote(str(INSTALLED_FROM))} "
        return f"install it: make {where}setup-torch"
    python = shlex.quote(str(Path(sys.prefix) / "bin" / "python"))
    return (
        f"install it for the Python that local jobs run with: {python} -m pip install {_PACKAGES.get(module, module)}"
    )


def _not_installed(module: str) -> MissingModuleError:
    return MissingModuleError(
        f"the rehearsal was not judged: the script imports {module!r}, which is not installed for local jobs",
        hint=f"{installation(module)}\n(a module of your own must be in the job's `source`)",
    )


def report_file(name: str, *, given: Path | None) -> Path:
    """Where a report is written that nobody gave a place."""
    return given or project_directory() / ".spotkeep" / "rehearsal" / name


def _from_here(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
