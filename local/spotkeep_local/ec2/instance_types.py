"""DescribeInstanceTypes: what follows from the name of a type's family, and nothing else.

AWS's answer has some hundred fields a type; here are those by which the launcher decides whether a type can be used.

Sources:
    https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html
    https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-nitro-instances.html
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

from spotkeep_local.ec2.filters import in_one_page, matches
from spotkeep_local.service_base.service_models import service_model

if TYPE_CHECKING:
    from botocore.model import StringShape

_ON_XEN: Final = re.compile(r"[ct]1|c[34]|cc[12]|cg1|cr1|d2|f1|g2|g3s?|h1|hi1|hs1|i[23]|m[1234]|p[23]|r[34]|t2|x1e?")
"""Families before the Nitro system; their bare-metal sizes are on it."""
_GRAVITON: Final = re.compile(r"a1|[a-z]+\d+g[a-z]*|p6e-gb200")
"""The first letter after the generation names the maker of the processors: g is AWS. g5g has them, g5 has not."""
_ACCELERATORS: Final[tuple[tuple[re.Pattern[str], dict[str, Any]], ...]] = (
    (re.compile(r"g4ad"), {"GpuInfo": {"Gpus": [{"Manufacturer": "AMD"}]}}),
    (re.compile(r"[gp]\d.*"), {"GpuInfo": {"Gpus": [{"Manufacturer": "NVIDIA"}]}}),
    (re.compile(r"dl1"), {"GpuInfo": {"Gpus": [{"Manufacturer": "Habana"}]}}),
    (re.compile(r"(trn|inf)\d.*"), {"NeuronInfo": {"NeuronDevices": [{"Name": "Neuron"}]}}),
)
"""Who makes a family's accelerators. How many there are does not follow from its name."""
_NEVER_ON_SPOT: Final = re.compile(r"(mac|u-|u7i|hpc)")


def describe_instance_types(request: dict[str, Any]) -> dict[str, Any]:
    """DescribeInstanceTypes, of the types that botocore knows; its model refuses others."""
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
        "ProcessorInfo": {"SupportedArchitectures": ["arm64" if _GRAVITON.fullmatch(family) else "x86_64"]},
        "EbsInfo": {"EncryptionSupport": "supported", "NvmeSupport": "required" if nitro else "unsupported"},
    }
    answer |= next((accelerators for families, accelerators in _ACCELERATORS if families.fullmatch(family)), {})
    if not bare_metal:
        answer["Hypervisor"] = "nitro" if nitro else "xen"
    return answer
