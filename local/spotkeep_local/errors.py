"""The errors of the local AWS, as one tree.

```
LocalAwsError
├── PortInUseError              the port that was asked for belongs to another program
├── RunningElsewhereError       the server runs already, on another port than the one asked for
├── StartError                  the server did not come up. Carries the last lines of its log
├── StopError                   the server did not go away
├── IncompatibleMinistackError  ministack is not the version whose internals we extend
├── PersistenceError            state could not be written or read back
├── ToolMissingError            node, cdk or uv is not installed
├── RegistryError               npm could not fetch the CDK command line. Carries npm's last words
├── IamPolicyError              a policy document holds what the judge of permissions does not know
└── ToolkitError                the CDK command line failed. Carries its own last words
```

Every message names the fault, the found facts, and the remedy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_OUT_OF_REACH = (
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "ETIMEDOUT",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "UNABLE_TO",
    "CERT_",
    "SELF_SIGNED",
)
"""Codes in npm's output of a registry that could not be reached."""


class LocalAwsError(Exception):
    """The root of every error this package raises on purpose."""


class PortInUseError(LocalAwsError):
    """Another program listens on the port that was asked for."""

    def __init__(self, port: int) -> None:
        self.port = port
        super().__init__(
            f"port {port} of 127.0.0.1 is in use by another program; end that program, "
            "name another port, or name none to get a free one"
        )


class RunningElsewhereError(LocalAwsError):
    """The local AWS of this state directory runs already, on another port."""

    def __init__(self, port: int, *, asked_for: int) -> None:
        self.port = port
        super().__init__(
            f"the local AWS runs already, on port {port} and not on {asked_for}; "
            "use it there, or stop it first (`spotkeep local down`)"
        )


class StartError(LocalAwsError):
    """The server ended, or did not answer in time, while it started."""

    def __init__(self, problem: str, *, log_tail: Sequence[str], log_path: str) -> None:
        self.log_tail = tuple(log_tail)
        lines = "\n".join(f"  {line}" for line in log_tail) or "  (the log is empty)"
        super().__init__(f"the local AWS did not start: {problem}. Last lines of {log_path}:\n{lines}")


class StopError(LocalAwsError):
    """The server is still there after SIGTERM and SIGKILL."""


class IncompatibleMinistackError(LocalAwsError):
    """The installed ministack is not the one this package extends."""


class PersistenceError(LocalAwsError):
    """The state of the local AWS could not be written or read back."""


class ToolMissingError(LocalAwsError):
    """A program that the deployment needs is not installed."""

    def __init__(self, tool: str, *, looked_at: str, fix: str) -> None:
        self.tool = tool
        super().__init__(f"{tool} is missing (looked at {looked_at}); {fix}")


class RegistryError(LocalAwsError):
    """npm could not install a package, most often because its registry is out of reach."""

    def __init__(self, package: str, *, last_words: Sequence[str]) -> None:
        self.package = package
        self.last_words = tuple(last_words)
        found = next((code for code in _OUT_OF_REACH if any(code in line for line in last_words)), None)
        problem = f"npm's registry is out of reach ({found})" if found else "npm failed"
        lines = "".join(f"\n  {line}" for line in last_words)
        super().__init__(
            f"{problem}, and {package} comes from there:\n"
            "Connect, or name a registry that is in reach (`npm config set registry URL`), and repeat the command. "
            f"It goes on from here. npm said:{lines}"
        )


class ToolkitError(LocalAwsError):
    """The CDK command line ended with an error."""

    def __init__(self, command: str, *, exit_code: int, last_words: Sequence[str]) -> None:
        self.command = command
        self.exit_code = exit_code
        self.last_words = tuple(last_words)
        lines = "\n".join(f"  {line}" for line in last_words) or "  (it printed nothing)"
        super().__init__(f"`{command}` failed with exit code {exit_code}:\n{lines}")


class IamPolicyError(LocalAwsError):
    """A policy document holds an element that AWS does not know, or lacks one that AWS requires."""

    def __init__(self, policy: str, *, problems: Sequence[str]) -> None:
        self.policy = policy
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"the policy {policy} cannot be judged; correct it:\n{lines}")
