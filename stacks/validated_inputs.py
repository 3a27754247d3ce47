"""What passed the rules before, so that a synth of the same need not be judged again.

cdk-nag and the CDK's template validation take as long as all the rest of a synth, and most synths (a rehearsal, a
deploy of a function's new code) give them nothing new. So the inputs of a synth that passed are remembered by their
digest: all that shapes the templates or judges them. The functions' and the training library's code are not among them,
for a template holds no more of them than a hash, which no rule looks at.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from spotkeep_constructs.archives import forget_oldest, keep, python_sources, sha256

REPORT = "validation-report.json"
"""The file of an assembly in which the CDK reports what the rules found."""

_PACKAGES = ("stacks", "constructs/spotkeep_constructs", "training/spotkeep_fleet")
_FILES = ("app.py", "cdk.json", "locks/lambda.txt")
_LIBRARIES = ("aws-cdk-lib", "cdk-nag", "constructs", "jsii", "pydantic")
_ENVIRONMENT = ("CDK_DEFAULT_ACCOUNT", "CDK_DEFAULT_REGION")


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The files of a checkout that shape the templates.

    Attributes:
        content: Content by path.
    """

    content: Mapping[str, bytes]

    @classmethod
    def read(cls, root: Path) -> Self:
        """Reads them as they are now.

        Args:
            root: The directory that holds cdk.json.
        """
        content = {name: (root / name).read_bytes() for name in _FILES}
        for package in _PACKAGES:
            content |= python_sources(root / package)
        return cls(content=content)

    def digest(self, *, context: Mapping[str, Any], environment: Mapping[str, str]) -> str:
        """Stands for everything that shapes the templates of a synth, and for the rules that judge them.

        Args:
            context: The app's whole context.
            environment: The process's environment.

        Returns:
            64 hexadecimal digits.
        """
        return sha256(
            *(part for name in sorted(self.content) for part in (name, self.content[name])),
            json.dumps(context, sort_keys=True),
            json.dumps([environment.get(name) for name in _ENVIRONMENT]),
            json.dumps([version(library) for library in _LIBRARIES]),
            platform.python_version(),
            sys.platform,
            platform.machine(),
        )


def found_nothing(report: Path) -> bool:
    """Tells whether the rules were applied and found nothing, not even something to warn of.

    That synthesis returned says less: under the CDK's command line it does so with findings too, and the command line
    reads this report and fails.

    Args:
        report: The assembly's `REPORT`.
    """
    try:
        document = json.loads(report.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("pluginReports") == []


class ValidatedInputs:
    """The digests of inputs that passed every rule, one file each.

    Args:
        directory: Holds the files; created when missing.
        limit: How many are remembered.
    """

    def __init__(self, directory: Path, *, limit: int = 32) -> None:
        self._directory = directory
        self._limit = limit

    def __contains__(self, digest: str) -> bool:
        try:
            # The digest once more: a file that was cut short or damaged vouches for nothing.
            return (self._directory / digest).read_bytes() == digest.encode()
        except OSError:
            return False

    def add(self, digest: str) -> None:
        """Remembers inputs, and forgets the oldest above the limit.

        Args:
            digest: Of inputs that passed every rule.
        """
        (self._directory / digest).unlink(missing_ok=True)
        keep(self._directory, digest, digest.encode())
        forget_oldest(self._directory, keep=self._limit)
