"""The container of a training, with its image and the login for it, the words that run it, and its end.

These are the choices and their reasons.

- The network is the instance's. The rule that closes the metadata service goes by user. So it holds for the container's
  processes as for any other process of this user, and the agent tests it in the same way. Through a bridge a packet
  counts as root's. The hop limit alone would then keep the service closed.
- The container runs as the user that trains, without capabilities and new privileges. The script has the same rights
  without a container.
- There is no `--init`. The runner is made to be process 1, and passes signals on.
- Docker keeps no log. The agent reads the output, and a second copy would fill the root volume.
- The image is on the instance, not on the run's volume. Otherwise docker would hold the volume at its detachment, and
  every snapshot would contain the image.

Source: GetAuthorizationToken, Amazon ECR API reference.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from spotkeep.notices.notice import notice_seconds
from spotkeep.runner.layout import import_root
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.errors import AwsCallRefusedError, AwsUnavailableError, ImageRefusedError, ImageUnavailableError
from spotkeep_agent.training.user import TrainingUser
from spotkeep_fleet.ecr_images import ecr_registry

from .docker import Docker

NAME = "spotkeep-training"
"""The container's name. An instance has one agent, and an agent one training."""
_ENVIRONMENT_NAME = "environment.json"
_ENTER = "spotkeep_agent/containers/enter.py"
_ADAPTERS = "uverbs*"
"""The devices by which programs use Elastic Fabric Adapters. NCCL without them goes over TCP and says so nowhere.

Source: "Get started with EFA and NCCL" (EC2 user guide) and `Documentation/infiniband/user_verbs.rst` (Linux)."""
_SPARE_SECONDS = 10
_ECR_LOGIN = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"


class Container:
    """The container of a training.

    Args:
        image: With its tag or digest.
        docker: Docker on this machine.
        calls: To Amazon ECR.
        user: The user that trains.
        state: A folder of the agent's, in memory on an instance.
        gpus: This instance has NVIDIA GPUs.
        adapters: The folder of the devices of Elastic Fabric Adapters, which is missing without any.
    """

    def __init__(
        self,
        image: str,
        *,
        docker: Docker,
        calls: AwsCalls,
        user: TrainingUser,
        state: Path,
        gpus: bool,
        adapters: Path,
    ) -> None:
        self._image = image
        self._docker = docker
        self._calls = calls
        self._user = user
        self._environment_file = state / _ENVIRONMENT_NAME
        self._gpus = gpus
        self._adapters = adapters

    @property
    def docker_environment(self) -> Mapping[str, str]:
        """The environment of the command that runs it, which is not the container's."""
        return self._docker.environment

    def bring(self) -> str | None:
        """Make sure that it can run, and pull its image. Return the image's digest, if docker says it.

        Raises:
            ImageRefusedError: If no instance of this deployment can run it.
            ImageUnavailableError: If this one cannot now, or it is cancelled.
        """
        self._docker.require(gpus=self._gpus)
        self.remove()  # An agent that crashed has left it.
        registry = ecr_registry(self._image)
        try:
            if registry is not None:
                user, password = _ecr_login(self._calls)
                self._docker.login(registry.host, user=user, password=password)
            return self._docker.pull(self._image)
        finally:
            self._docker.forget_logins()

    def command(
        self,
        runner: Sequence[str],
        *,
        environment: Mapping[str, str],
        base: Path,
        notices: Path,
        file_systems: Mapping[Path, bool],
    ) -> list[str]:
        """Write the environment for it, and give the words that run it.

        Args:
            runner: The words after `spotkeep.pyz`.
            environment: The environment of the runner, beside the image's own.
            base: The mount point of the volume.
            notices: The folder in which agent and training leave each other notices.
            file_systems: The mount points of file systems, each with True where the training may write.

        Raises:
            OSError: The environment cannot be written.
        """
        self._write_environment(environment)
        root = import_root()
        user = self._user
        return [
            self._docker.program, "run", "--rm", "--name", NAME, "--pull", "never", "--log-driver", "none",
            "--network", "host", "--userns", "host", "--user", f"{user.uid}:{user.gid}",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
            "--ulimit", "nofile=1048576:1048576", "--ulimit", "memlock=-1:-1",
            "--shm-size", str(_half_of_the_memory()),
            # When the machine shuts down docker ends containers, too.
            "--stop-timeout", str(int(notice_seconds()) + _SPARE_SECONDS),
            *(["--gpus", "all"] if self._gpus else []),
            *(word for adapter in sorted(self._adapters.glob(_ADAPTERS)) for word in ("--device", str(adapter))),
            *_mount(base), *_mount(notices), *_mount(Path(user.home)),
            *(word for point, writable in file_systems.items() for word in _mount(point, readonly=not writable)),
            *_mount(Path(root), readonly=True), *_mount(self._environment_file, readonly=True),
            "--workdir", str(base), "--entrypoint", "python3", self._image,
            "-I", f"{root}/{_ENTER}", str(self._environment_file), root, *runner,
        ]  # fmt: skip

    def remove(self) -> None:
        """Leave nothing of it, nor of its environment, which may hold the values of secrets."""
        self._docker.remove(NAME)
        self._environment_file.unlink(missing_ok=True)

    def _write_environment(self, environment: Mapping[str, str]) -> None:
        self._environment_file.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._environment_file, flags, 0o400)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            if not self._user.is_us:
                os.fchown(descriptor, self._user.uid, self._user.gid)
            json.dump(dict(environment), file)


def container_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the agent's environment for a container, which is the place of AWS.

    The rest is the instance's, not the image's.

    Args:
        inherited: The agent's own.
    """
    return {name: value for name, value in inherited.items() if name.startswith("AWS_")}


def _ecr_login(calls: AwsCalls) -> tuple[str, str]:
    """Ask for the user and the password of the registries in the region of the calls, which are good for twelve hours.

    Raises:
        ImageRefusedError: If the run may not have them.
        ImageUnavailableError: If ECR does not answer.
    """
    try:
        answer = calls.json("ecr", _ECR_LOGIN, {}, version="1.1")
        token = answer["authorizationData"][0]["authorizationToken"]
        user, colon, password = base64.b64decode(token, validate=True).decode("utf-8").partition(":")
    except AwsCallRefusedError as error:
        raise ImageRefusedError(
            f"Amazon ECR gives this run no password: {error}. Deploy again: the run role may have one since this "
            "version, unless a permissions boundary or a policy of the organization denies it"
        ) from error
    except (AwsUnavailableError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ImageUnavailableError(f"Amazon ECR gives no password: {error}") from error
    if not colon:
        raise ImageUnavailableError("Amazon ECR gives a token that holds no user and password")
    return user, password


def _mount(path: Path, *, readonly: bool = False) -> list[str]:
    """Show something at its own path."""
    return ["--mount", f"type=bind,source={path},target={path}{',readonly' if readonly else ''}"]


def _half_of_the_memory() -> int:
    """Return the size of `/dev/shm` for a machine.

    Data loaders pass batches through it, and docker's default is 64 MiB.
    """
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
