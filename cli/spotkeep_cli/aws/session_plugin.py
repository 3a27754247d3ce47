"""Hands a session and the terminal to AWS's `session-manager-plugin`, until the session ends.

It is called as the AWS CLI calls it. The session's token goes through its environment. Other users of the machine could
read it on a command line. Older versions of the plugin cannot take it from the environment, and are refused.

Source: https://docs.aws.amazon.com/systems-manager/latest/userguide/plugin-version-history.html
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from spotkeep_cli.errors import NoConnectionError

PROGRAM: Final = "session-manager-plugin"
_INSTALL: Final = (
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
)
_RESPONSE_VARIABLE: Final = "AWS_SSM_START_SESSION_RESPONSE"
_LAST_WITHOUT_THE_VARIABLE: Final = (1, 2, 497, 0)
_VERSION_SECONDS: Final = 20.0
_TERMINAL_SIGNALS: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
r"""The signals that Ctrl-C, Ctrl-\ and Ctrl-Z send to every process of the terminal.

They are meant for the session.
"""


def find_plugin() -> str:
    """Return the path of the plugin.

    Raises:
        NoConnectionError: It is not installed, does not start, or is too old.
    """
    path = shutil.which(PROGRAM)
    if path is None:
        raise NoConnectionError(f"AWS's {PROGRAM} is not on the PATH", hint=f"install it: {_INSTALL}")
    try:
        asked = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoConnectionError(f"{path} does not start: {error}", hint=f"install it again: {_INSTALL}") from error
    version = asked.stdout.strip()
    if re.fullmatch(r"\d+(\.\d+){3}", version) and tuple(map(int, version.split("."))) <= _LAST_WITHOUT_THE_VARIABLE:
        raise NoConnectionError(
            f"{PROGRAM} {version} would show the session's token to other users of this machine",
            hint=f"install a newer one: {_INSTALL}",
        )
    return path


def run_session(
    plugin: str,
    *,
    session: Mapping[str, Any],
    parameters: Mapping[str, Any],
    region: str,
    profile: str,
    endpoint_url: str,
) -> int:
    """Run the plugin in this terminal until the session ends, and return its exit code.

    Args:
        plugin: The path of the plugin.
        session: StartSession's answer.
        parameters: StartSession's request.
        region: The region of the session.
        profile: The AWS profile. Empty for the configuration's own.
        endpoint_url: The address of Systems Manager.
    """
    arguments = [_RESPONSE_VARIABLE, region, "StartSession", profile, json.dumps(dict(parameters)), endpoint_url]
    environment = {**os.environ, _RESPONSE_VARIABLE: json.dumps(dict(session))}
    with _signals_left_to_the_session():
        return subprocess.run([plugin, *arguments], env=environment, check=False).returncode


@contextmanager
def _signals_left_to_the_session() -> Iterator[None]:
    # Handled rather than ignored: what is ignored here would be ignored by the plugin as well.
    before = {number: signal.signal(number, lambda *_: None) for number in _TERMINAL_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
