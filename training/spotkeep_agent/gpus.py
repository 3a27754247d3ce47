"""A check before the training that the AMI's driver finds the NVIDIA GPUs of the instance.

Source: `nvidia-smi -L`, "NVIDIA System Management Interface" (NVIDIA's documentation). It prints a line `GPU <number>:
...` for each GPU that the driver has.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .errors import DriverMissingError, GpusUnusableError

_NVIDIA_VENDOR, _DISPLAY_CLASS = "0x10de", "0x03"
_ANSWER_SECONDS = 120.0
_LONGEST_SAID = 400
_LISTED = re.compile(r"^GPU \d+:", re.MULTILINE)
_WHAT_TO_DO = (
    "choose types that the AMI's driver is for (spotkeep help fleets the image), or deploy with an AMI that drives "
    "these (the setting instance_ami)"
)


def count_nvidia_gpus(devices: Path) -> int:
    """Count the NVIDIA GPUs of a machine, with a driver or without.

    Args:
        devices: Those of its PCI buses, `/sys/bus/pci/devices`.
    """
    return sum(
        _text(device / "vendor") == _NVIDIA_VENDOR and _text(device / "class").startswith(_DISPLAY_CLASS)
        for device in (devices.iterdir() if devices.is_dir() else ())
    )


def require_driver(gpus: int, *, instance_type: str, environment: Mapping[str, str]) -> None:
    """Make sure that a training finds the GPUs of this instance. Asks nothing where there are none.

    Args:
        gpus: The number of GPUs of the machine.
        instance_type: The instance type, for messages.
        environment: The agent's own, with a PATH that finds `nvidia-smi`.

    Raises:
        DriverMissingError: If the AMI has no driver.
        GpusUnusableError: If the driver has not all of them.
    """
    if not gpus:
        return
    found = f"this instance ({instance_type}) has {gpus} NVIDIA GPU{'s' if gpus > 1 else ''}, and "
    program = shutil.which("nvidia-smi", path=environment.get("PATH", os.defpath))
    if program is None:
        raise DriverMissingError(f"{found}its AMI has no driver for them (no nvidia-smi): {_WHAT_TO_DO}")
    try:
        done = subprocess.run(
            [program, "-L"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GpusUnusableError(f"{found}nvidia-smi -L has not answered for {_ANSWER_SECONDS:.0f} s") from error
    except OSError as error:
        raise GpusUnusableError(f"{found}nvidia-smi cannot be started: {error}") from error
    said = done.stdout.decode("utf-8", "replace").strip()
    listed = len(_LISTED.findall(said))
    if done.returncode or listed < gpus:
        words = f"nvidia-smi -L lists {listed} (exit code {done.returncode}): {said[-_LONGEST_SAID:] or 'nothing'}"
        raise GpusUnusableError(f"{found}{words}; {_WHAT_TO_DO}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
