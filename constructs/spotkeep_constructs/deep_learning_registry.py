"""Whose account AWS's Deep Learning Containers are in, which depends on the region: an image is pulled from its own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_COMMON = "763104351884"

REGISTRY_ACCOUNTS: Mapping[str, str] = MappingProxyType(
    {
        "af-south-1": "626614931356",
        "ap-east-1": "871362719292",
        "ap-east-2": "975050140332",
        "ap-northeast-1": _COMMON,
        "ap-northeast-2": _COMMON,
        "ap-northeast-3": "364406365360",
        "ap-south-1": _COMMON,
        "ap-south-2": "772153158452",
        "ap-southeast-1": _COMMON,
        "ap-southeast-2": _COMMON,
        "ap-southeast-3": "907027046896",
        "ap-southeast-4": "457447274322",
        "ap-southeast-5": "550225433462",
        "ap-southeast-6": "633930458069",
        "ap-southeast-7": "590183813437",
        "ca-central-1": _COMMON,
        "ca-west-1": "204538143572",
        "eu-central-1": _COMMON,
        "eu-central-2": "380420809688",
        "eu-north-1": _COMMON,
        "eu-south-1": "692866216735",
        "eu-south-2": "503227376785",
        "eu-west-1": _COMMON,
        "eu-west-2": _COMMON,
        "eu-west-3": _COMMON,
        "il-central-1": "780543022126",
        "me-central-1": "914824155844",
        "me-south-1": "217643126080",
        "me-west-1": "124382933778",
        "mx-central-1": "637423239942",
        "sa-east-1": _COMMON,
        "us-east-1": _COMMON,
        "us-east-2": _COMMON,
        "us-west-1": _COMMON,
        "us-west-2": _COMMON,
    }
)
"""The account by region, of the partition `aws`.

Source: https://aws.github.io/deep-learning-containers/reference/region_availability/ (November 2026)
"""
