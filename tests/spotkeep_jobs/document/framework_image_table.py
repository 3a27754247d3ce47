"""Writes the launcher's table of AWS's own images from the data of the SageMaker SDK.

`python -m tests.spotkeep_jobs.document.framework_image_table` writes it again when the SDK of the lock is a newer one.
The SDK itself is too heavy for a function.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

import spotkeep_jobs.document.framework_images as table

TABLE: Final = Path(table.__file__)
FRAMEWORKS: Final = ("pytorch", "tensorflow", "huggingface", "xgboost", "sklearn")
ALGORITHMS: Final = (
    "xgboost",
    "blazingtext",
    "factorization-machines",
    "forecasting-deepar",
    "image-classification",
    "ipinsights",
    "kmeans",
    "knn",
    "lda",
    "linear-learner",
    "ntm",
    "object-detection",
    "object2vec",
    "pca",
    "randomcutforest",
    "semantic-segmentation",
    "seq2seq",
)
_VERSIONS_KEPT: Final = 3
_VERSION: Final = re.compile(r"\d+(\.\d+)*(-\d+)?")
_ELSEWHERE: Final = re.compile(r".*-iso|eusc-")
_START: Final = '''\
"""AWS's own training images, by framework or algorithm and version, and whose accounts they are in. Data only.

Written by `python -m tests.spotkeep_jobs.document.framework_image_table` from the SageMaker SDK
(sagemaker.core.image_uris); a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class AwsImage:
    """An image that AWS publishes in many regions.

    Attributes:
        path: repository and tag; `{processor}` stands for `cpu` or `gpu`.
        registry: the key of its accounts in `ACCOUNTS`.
        not_in: regions of that registry in which this version is not served.
    """

    path: str
    registry: str
    not_in: tuple[str, ...] = ()


'''


def table_source() -> str:
    """Return the table's module."""
    accounts: dict[str, dict[str, str]] = {}
    tables: dict[str, list[tuple[str, str, str, Mapping[str, str]]]] = {}
    for table_name, families in (("FRAMEWORK_IMAGES", FRAMEWORKS), ("ALGORITHM_IMAGES", ALGORITHMS)):
        tables[table_name] = found = []
        for family in families:
            for version, path, registries in _images(family):
                served = {region: account for region, account in registries.items() if not _ELSEWHERE.match(region)}
                registry = next((name for name, known in accounts.items() if _agree(known, served)), family)
                accounts[registry] = {**accounts.get(registry, {}), **served}
                found.append((f"{family}-{version}", path, registry, served))
    lines = [line for name, found in tables.items() for line in _table(name, found, accounts=accounts)]
    lines += ["ACCOUNTS: Final[Mapping[str, Mapping[str, str]]] = {"]
    for registry, regions in accounts.items():
        rows = [f'        "{region}": "{account}",' for region, account in sorted(regions.items())]
        lines += [f'    "{registry}": {{', *rows, "    },"]
    lines += ["}", '"""The account by registry and region."""', ""]
    return _START + "\n".join(lines)


def _table(
    name: str,
    found: list[tuple[str, str, str, Mapping[str, str]]],
    *,
    accounts: Mapping[str, Mapping[str, str]],
) -> list[str]:
    """Return the lines of one table."""
    lines = [f"{name}: Final[Mapping[str, AwsImage]] = {{"]
    for image, path, registry, served in found:
        absent = [f'"{region}",' for region in sorted(accounts[registry].keys() - served.keys())]
        several = ["        not_in=(", *(f"            {region}" for region in absent), "        ),"]
        lines += [
            f'    "{image}": AwsImage(',
            f'        path="{path}",',
            f'        registry="{registry}",',
            *(several if len(absent) > 1 else [f"        not_in=({region})," for region in absent]),
            "    ),",
        ]
    what = "framework" if name == "FRAMEWORK_IMAGES" else "algorithm"
    return [*lines, "}", f'"""By `<{what}>-<version>`, of each {what} the oldest first."""', ""]


def _agree(known: Mapping[str, str], served: Mapping[str, str]) -> bool:
    both = known.keys() & served.keys()
    return bool(both) and all(known[region] == served[region] for region in both)


def _images(framework: str) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Yield version, repository with tag, and accounts by region, of the newest versions of a framework."""
    config = _config(framework)
    versions = [version for version in config["versions"] if _VERSION.fullmatch(version)]
    for version in versions[-_VERSIONS_KEPT:]:
        image, start, processors = config["versions"][version], version, config.get("processors")
        if framework == "huggingface":
            [base] = [key for key in image if re.match(r"pytorch\d", key)]
            image, start = image[base], f"{base.removeprefix('pytorch')}-transformers{version}"
        processors = image.get("processors") or processors or []
        processor = "{processor}" if len(processors) > 1 else "".join(processors)
        [python] = image.get("py_versions") or [""]
        build = image.get("container_version", {}).get(processor, "")
        tag = "-".join(part for part in (start, processor, python, build) if part)
        yield version, f"{image['repository']}:{tag}", image["registries"]


def _config(framework: str) -> dict[str, Any]:
    """Read what the SDK knows about a framework, without the seconds that importing the SDK takes."""
    path = distribution("sagemaker-core").locate_file(f"sagemaker/core/image_uri_config/{framework}.json")
    config: dict[str, Any] = json.loads(Path(str(path)).read_text())
    return config.get("training", config)  # type: ignore[no-any-return]


def main() -> int:
    """Write the table."""
    TABLE.write_text(table_source())
    return 0


if __name__ == "__main__":
    sys.exit(main())
