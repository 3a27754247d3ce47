"""The docker of this machine by its command line, with a check, a login, a pull, and the end of a container.

Sources: Docker's command-line reference, "Private registry authentication" (Amazon ECR user guide), "Installing the
NVIDIA Container Toolkit" (NVIDIA's documentation)
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from spotkeep_agent.errors import ImageRefusedError, ImageUnavailableError

_ANSWER_SECONDS = 60.0
_SERVICE_SECONDS = 120.0
_REMOVAL_SECONDS = 10.0
_PULL_SECONDS = 3600.0
_POLL_SECONDS = 0.2
_ATTEMPTS = 5
_FIRST_PAUSE_SECONDS = 2.0
_LONGEST_SAID = 400
_NVIDIA_TOOLS = ("nvidia-ctk", "nvidia-container-runtime-hook")
_DIGEST = re.compile(r"^Digest: (sha256:[0-9a-f]{64})$", re.MULTILINE)
_ANOTHER_AMI = (
    "deploy with an AMI that has it (the setting instance_ami; AWS's Deep Learning AMIs have docker and NVIDIA's "
    "container toolkit), or remove image from the job file"
)
_FOR_GOOD = (
    (r"no space left on device", "raise the setting instance_volume_gb: images lie on the instance's root volume"),
    (r"no matching manifest", "name an image for the processors of the instance types"),
    (
        r"denied|unauthorized|not authorized|no basic auth credentials|403 Forbidden",
        "an image in Amazon ECR has to be in the deployment's region, and its repository's policy has to let this "
        "account pull it if it is another account's; an image elsewhere has to be public",
    ),
    (r"manifest unknown|not found|name unknown|invalid reference", "correct the image's name, tag or digest"),
)
"""Messages of a registry or docker that the next instance would get as well, each with a remedy."""

_logger = logging.getLogger("spotkeep.agent")


class _Done(NamedTuple):
    code: int
    said: str

    @property
    def last_line(self) -> str:
        """The last line of its output, which has the reason of a failure."""
        lines = self.said.strip().splitlines()
        return lines[-1].strip()[-_LONGEST_SAID:] if lines else f"exit code {self.code}"


class Docker:
    """The docker of this machine.

    Args:
        environment: The agent's own, with a PATH that finds docker.
        configuration: A folder for logins, which is made and removed, on an instance in memory and for root alone.
        cancelled: Set it to break off running commands. A container is removed all the same.

    Attributes:
        environment: The environment of its commands.
    """

    def __init__(self, *, environment: Mapping[str, str], configuration: Path, cancelled: threading.Event) -> None:
        self._path = environment.get("PATH", os.defpath)
        self._configuration = configuration
        self._cancelled = cancelled
        # Not root's own: an AMI's may name a store of credentials, and what is in it would be used.
        self.environment = {**environment, "DOCKER_CONFIG": str(configuration)}

    @property
    def program(self) -> str:
        """The path of its command.

        Raises:
            ImageRefusedError: If the AMI has none.
        """
        found = shutil.which("docker", path=self._path)
        if found is None:
            raise ImageRefusedError(f"the AMI has no docker, which the image needs: {_ANOTHER_AMI}")
        return found

    def require(self, *, gpus: bool) -> None:
        """Make sure that containers can run here.

        Args:
            gpus: They need NVIDIA's runtime, because this instance has such GPUs.

        Raises:
            ImageRefusedError: The AMI lacks a requirement.
            ImageUnavailableError: Docker does not answer.
        """
        found = self._runtimes()
        if found.code:
            self._start_service()
            found = self._runtimes()
        if found.code:
            raise ImageUnavailableError(f"docker does not answer: {found.last_line}")
        try:
            runtimes = json.loads(found.said)
        except ValueError:
            runtimes = {}
        has_tools = any(shutil.which(name, path=self._path) for name in _NVIDIA_TOOLS)
        if gpus and "nvidia" not in (runtimes or {}) and not has_tools:
            raise ImageRefusedError(
                "this instance has NVIDIA GPUs, and its docker has no runtime for them (docker info names no runtime "
                f"nvidia, and there is no nvidia-ctk): {_ANOTHER_AMI}"
            )

    def login(self, registry: str, *, user: str, password: str) -> None:
        """Log in, until `forget_logins`. The password goes through a pipe.

        Raises:
            ImageRefusedError: If the registry refuses it.
            ImageUnavailableError: If the registry cannot be reached, or this is cancelled.
        """
        self._configuration.mkdir(mode=0o700, exist_ok=True)
        words = ("login", "--username", user, "--password-stdin", registry)
        self._persist(*words, given=password, failure=f"the login to {registry} failed", seconds=_ANSWER_SECONDS)

    def forget_logins(self) -> None:
        """Remove the files of `login`."""
        shutil.rmtree(self._configuration, ignore_errors=True)

    def pull(self, image: str) -> str | None:
        """Bring an image here, as far as it is not here yet. Return its digest, if docker says it.

        Raises:
            ImageRefusedError: If no instance can have it.
            ImageUnavailableError: If this one cannot have it now, or this is cancelled.
        """
        failure = f"the image {image} cannot be pulled"
        found = _DIGEST.search(self._persist("pull", image, failure=failure, seconds=_PULL_SECONDS).said)
        return None if found is None else found[1]

    def remove(self, name: str) -> None:
        """Kill a container and remove it, if it is there."""
        try:
            done = self._run("rm", "--force", name, seconds=_REMOVAL_SECONDS, cancelled=threading.Event())
        except (ImageUnavailableError, ImageRefusedError, OSError) as error:
            _logger.warning("the container %s may be left: %s", name, error)
            return
        if done.code and "no such container" not in done.said.lower():
            _logger.warning("the container %s may be left: %s", name, done.last_line)

    def _runtimes(self) -> _Done:
        return self._run("info", "--format", "{{json .Runtimes}}", seconds=_ANSWER_SECONDS)

    def _start_service(self) -> None:
        """Start docker's service, which an AMI may leave stopped. Docker's next answer shows if it runs."""
        program = shutil.which("systemctl", path=self._path)
        if program is not None:
            self._execute([program, "start", "docker"], seconds=_SERVICE_SECONDS)

    def _persist(self, *words: str, failure: str, seconds: float, given: str | None = None) -> _Done:
        """Run a command that needs a network, again where the next time may be different."""
        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                pause = _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
                # A little of chance: many instances that a registry throttled do not come back together.
                self._cancelled.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret hangs on it
            if self._cancelled.is_set():
                raise ImageUnavailableError(f"{failure}: it was broken off")
            done = self._run(*words, seconds=seconds, given=given)
            if done.code == 0:
                return done
            problem = done.last_line
            for pattern, fix in _FOR_GOOD:
                if re.search(pattern, done.said, re.IGNORECASE):
                    raise ImageRefusedError(f"{failure}: {problem}; {fix}")
            _logger.warning("%s: %s", failure, problem)
        raise ImageUnavailableError(f"{failure}, {_ATTEMPTS} times: {problem}")

    def _run(
        self, *words: str, seconds: float, given: str | None = None, cancelled: threading.Event | None = None
    ) -> _Done:
        return self._execute([self.program, *words], seconds=seconds, given=given, cancelled=cancelled)

    def _execute(
        self,
        command: Sequence[str],
        *,
        seconds: float,
        given: str | None = None,
        cancelled: threading.Event | None = None,
    ) -> _Done:
        """Run a command to its end.

        Raises:
            ImageUnavailableError: It takes too long, or is cancelled. Docker ends a pull when its command is gone.
        """
        ends = time.monotonic() + seconds
        process = subprocess.Popen(
            list(command),
            env=self.environment,
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        raw = None if given is None else given.encode()
        while True:
            try:
                said, _ = process.communicate(raw, timeout=_POLL_SECONDS)
                return _Done(process.returncode, said.decode("utf-8", "replace"))
            except subprocess.TimeoutExpired:
                raw = None
                broken_off = (cancelled or self._cancelled).is_set()
                if not broken_off and time.monotonic() < ends:
                    continue
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            why = "was broken off" if broken_off else f"took more than {seconds:.0f} s"
            raise ImageUnavailableError(f"{Path(command[0]).name} {command[1]} {why}")
