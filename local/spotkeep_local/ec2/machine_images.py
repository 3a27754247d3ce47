"""The AMI that AWS has and ministack lacks: the one with PyTorch, the default of a deployment.

A host shares this machine's files, so `/opt/pytorch` on it is the Python environment that runs the local
AWS, and its docker is a program of the local AWS's.

Source: https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class MachineImage:
    """A public AMI.

    Attributes:
        image_id: Its id.
        parameter: The public SSM parameter that holds the id.
        name: The name of the image.
        root_device: Its root device.
        links: What its hosts have beside this machine's files: directories, by path below `/`.
        programs: Commands that they have besides: the texts of scripts, by name.
    """

    image_id: str
    parameter: str
    name: str
    root_device: str
    links: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)


DOCKER = f"""#!/bin/sh
exec {shlex.quote(sys.prefix)}/bin/python3 -I -m spotkeep_local.hosts.docker "$@"
"""

PYTORCH = MachineImage(
    image_id="ami-0d1ea2023a1b2c3d4",
    parameter="/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.11-amazon-linux-2023/latest/ami-id",
    name="Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.11 (Amazon Linux 2023)",
    root_device="/dev/xvda",
    links={"opt/pytorch": sys.prefix},
    programs={"docker": DOCKER},
)
