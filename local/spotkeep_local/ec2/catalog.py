"""The offers of EC2, which are instance types, their spot prices, and machine images."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from spotkeep_local.ec2.cloud import zone_id
from spotkeep_local.ec2.filters import in_one_page, matches
from spotkeep_local.hosts import mount
from spotkeep_local.service_base.clients import service_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from botocore.model import StringShape

    from spotkeep_local.ec2.cloud import Cloud

_ON_XEN: Final = re.compile(r"[ct]1|c[34]|cc[12]|cg1|cr1|d2|f1|g2|g3s?|h1|hi1|hs1|i[23]|m[1234]|p[23]|r[34]|t2|x1e?")
"""Families before the Nitro system. Their bare-metal sizes are on it."""
_GRAVITON: Final = re.compile(r"a1|[a-z]+\d+g[a-z]*|p6e-gb200")
"""Families with AWS's own processors, marked by g right after the generation. g5g has them, g5 has not."""
_ACCELERATORS: Final[tuple[tuple[re.Pattern[str], dict[str, Any]], ...]] = (
    (re.compile(r"g4ad"), {"GpuInfo": {"Gpus": [{"Manufacturer": "AMD"}]}}),
    (re.compile(r"[gp]\d.*"), {"GpuInfo": {"Gpus": [{"Manufacturer": "NVIDIA"}]}}),
    (re.compile(r"dl1"), {"GpuInfo": {"Gpus": [{"Manufacturer": "Habana"}]}}),
    (re.compile(r"(trn|inf)\d.*"), {"NeuronInfo": {"NeuronDevices": [{"Name": "Neuron"}]}}),
)
"""The makers of the families' accelerators. The number of accelerators does not follow from a family's name."""
_NEVER_ON_SPOT: Final = re.compile(r"(mac|u-|u7i|hpc)")
_WITH_EFA: Final = re.compile(
    r"(g4dn|g5|g6e?|gr6)\.(8|12|16|24|48)xlarge|p3dn\.24xlarge|p4de?\.24xlarge|p5\w*\.(4|48)xlarge|p6-\w+\.\w+"
    r"|trn1n?\.32xlarge|trn2\w*\.\w+|dl1\.24xlarge|c5n\.(9|18)xlarge|c[67]gn\.16xlarge"
)
"""Types with an Elastic Fabric Adapter, of those that train. The others with one are the largest sizes of families."""
_NEVER_IN_CLUSTERS: Final = re.compile(r"t\d|mac|m7i-flex|c7i-flex")
"""Families that a cluster placement group does not take."""


_PRODUCT = "Linux/UNIX"
_HISTORY_SECONDS = 90 * 86_400.0


def describe_instance_types(request: dict[str, Any]) -> dict[str, Any]:
    """DescribeInstanceTypes, of the types that botocore knows. Its model refuses others."""
    known = cast("StringShape", service_model("ec2").shape_for("InstanceType")).enum
    filters = request.get("Filters", [])
    names = [name for name in request.get("InstanceTypes") or known if matches({"instance-type": [name]}, {}, filters)]
    return {"InstanceTypes": [described(name) for name in in_one_page(names, request)]}


def described(name: str) -> dict[str, Any]:
    """Return a type as the API describes it.

    Args:
        name: For example `g5.xlarge`.
    """
    family, _, size = name.partition(".")
    bare_metal = size.startswith("metal")
    nitro = bare_metal or _ON_XEN.fullmatch(family) is None
    answer: dict[str, Any] = {
        "InstanceType": name,
        "SupportedUsageClasses": ["on-demand", *([] if _NEVER_ON_SPOT.match(family) else ["spot"])],
        "SupportedRootDeviceTypes": ["ebs"],
        "BareMetal": bare_metal,
        "NetworkInfo": {"EfaSupported": _WITH_EFA.fullmatch(name) is not None},
        "PlacementGroupInfo": {
            "SupportedStrategies": [*([] if _NEVER_IN_CLUSTERS.match(family) else ["cluster"]), "partition", "spread"]
        },
        "ProcessorInfo": {"SupportedArchitectures": ["arm64" if _GRAVITON.fullmatch(family) else "x86_64"]},
        "EbsInfo": {"EncryptionSupport": "supported", "NvmeSupport": "required" if nitro else "unsupported"},
    }
    answer |= next((accelerators for families, accelerators in _ACCELERATORS if families.fullmatch(family)), {})
    if not bare_metal:
        answer["Hypervisor"] = "nitro" if nitro else "xen"
    return answer


def _newest_first(record: dict[str, Any]) -> tuple[float, str, str]:
    return -record["Timestamp"], record["AvailabilityZone"], record["InstanceType"]


class SpotPrices:
    """The operations on prices."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Return the operations by the API's names."""
        return {"DescribeSpotPriceHistory": self.describe}

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeSpotPriceHistory, latest first.

        It has each change in the requested time, and the price at the beginning of that time.
        """
        cloud = self._cloud
        now = cloud.now()
        end = min(request.get("EndTime", now), now)
        start = min(max(request.get("StartTime", now), now - _HISTORY_SECONDS), end)
        products = request.get("ProductDescriptions")
        wanted_zone, filters = request.get("AvailabilityZone"), request.get("Filters", [])
        records: list[dict[str, Any]] = [
            {
                "AvailabilityZone": zone,
                "AvailabilityZoneId": zone_id(zone),
                "InstanceType": instance_type,
                "ProductDescription": _PRODUCT,
                "SpotPrice": f"{price_usd:.6f}",
                "Timestamp": moment,
            }
            for instance_type in request.get("InstanceTypes") or self._known_types()
            for zone in cloud.zones()
            if wanted_zone in (None, zone) and matches({"availability-zone": [zone]}, {}, filters)
            for moment, price_usd in cloud.market.prices(instance_type=instance_type, zone=zone, start=start, end=end)
            if not products or any(product.startswith(_PRODUCT) for product in products)
        ]
        return {"SpotPriceHistory": in_one_page(sorted(records, key=_newest_first), request), "NextToken": ""}

    def _known_types(self) -> list[str]:
        scripted = {change.instance_type for change in self._cloud.market.changes if change.instance_type}
        return sorted(scripted | {instance.instance_type for instance in self._cloud.instances})


@dataclass(frozen=True, kw_only=True)
class MachineImage:
    """A public AMI.

    Attributes:
        image_id: Its id.
        parameter: The public SSM parameter that holds the id.
        name: The name of the image.
        root_device: Its root device.
        links: The directories that its hosts have beside this machine's files, by path below `/`.
        programs: The texts of further commands that its hosts have, by name.
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


def mount_programs(file_systems: Path) -> dict[str, str]:
    """Return the texts of `mount` and `umount`, which know the file systems of the account beside the machine's own.

    Args:
        file_systems: The folder of the file systems.
    """
    words = [f"{sys.prefix}/bin/python3", "-I", "-S", mount.__file__, str(file_systems)]
    return {
        "mount": f"""#!/bin/sh
case "$2" in lustre|nfs4) exec {shlex.join(words)} "$@";; esac
PATH={mount.SYSTEM_PATH} exec mount "$@"
""",
        "umount": f"""#!/bin/sh
for point; do :; done
[ -L "$point" ] && exec rm "$point"
PATH={mount.SYSTEM_PATH} exec umount "$@"
""",
    }


PYTORCH = MachineImage(
    image_id="ami-0d1ea2023a1b2c3d4",
    parameter="/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.11-amazon-linux-2023/latest/ami-id",
    name="Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.11 (Amazon Linux 2023)",
    root_device="/dev/xvda",
    links={"opt/pytorch": sys.prefix},
    programs={"docker": DOCKER},
)
