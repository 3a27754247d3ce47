"""The unprivileged user that trains."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass

from spotkeep_agent.errors import InstanceSettingsError


@dataclass(frozen=True)
class TrainingUser:
    """The user that trains, with name, ids and home directory."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def is_us(self) -> bool:
        """True when the agent itself runs as this user."""
        return self.uid == os.geteuid()


def current_user() -> TrainingUser:
    """Return the user that the agent runs as."""
    return _described(pwd.getpwuid(os.geteuid()))


def find_user(name: str) -> TrainingUser:
    """Return the user that trains, made when it is missing. Without root, it is the one that the agent runs as.

    Raises:
        InstanceSettingsError: If it cannot be made.
    """
    if os.geteuid() != 0:
        return current_user()
    try:
        return _described(pwd.getpwnam(name))
    except KeyError:
        program = shutil.which("useradd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if program is None:
        raise InstanceSettingsError(
            [f"there is no user {name!r} and no useradd to make it with; use an image that has one"]
        )
    done = subprocess.run(
        [program, "--system", "--create-home", "--shell", "/bin/sh", name], capture_output=True, text=True, check=False
    )
    try:
        return _described(pwd.getpwnam(name))
    except KeyError as error:
        raise InstanceSettingsError([f"the user {name!r} cannot be made: {done.stderr.strip()}"]) from error


def _described(entry: pwd.struct_passwd) -> TrainingUser:
    return TrainingUser(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir)
