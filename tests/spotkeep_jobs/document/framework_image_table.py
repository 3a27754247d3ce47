"""Writes the launcher's table of AWS's own images from the data of the SageMaker SDK.

`python -m tests.spotkeep_jobs.document.framework_image_table` writes it again when the SDK of the lock is a newer one.
The SDK itself is too heavy for a function.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
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
from typing import Final, NamedTuple


class AwsImage(NamedTuple):
    """An image that AWS publishes in many regions.

    Attributes:
        registry: the key of its accounts in `ACCOUNTS`, which has the regions where it is served.
        path: repository and tag; `{processor}` stands for `cpu` or `gpu`.
    """

    registry: str
    path: str


def _images(table: str) -> Mapping[str, AwsImage]:
    rows = [row.split() for row in table.strip().splitlines()]
    return {name: AwsImage(registry, path) for name, registry, path in rows}


'''


def table_source() -> str:
    """Return the table's module."""
    accounts: dict[str, Mapping[str, str]] = {}
    lines: list[str] = []
    for what, families in (("framework", FRAMEWORKS), ("algorithm", ALGORITHMS)):
        rows = []
        for family in families:
            for version, path, registries in _images(family):
                served = {region: account for region, account in registries.items() if not _ELSEWHERE.match(region)}
                registry = next((name for name, known in accounts.items() if known == served), None)
                if registry is None:
                    registry = family if family not in accounts else f"{family}-{version}"
                    accounts[registry] = served
                rows.append((f"{family}-{version}", registry, path))
        lines += [f'{what.upper()}_IMAGES: Final = _images("""', *_aligned(rows), '""")']
        lines += [f'"""By `<{what}>-<version>`, of each {what} the oldest first."""', ""]
    regions = sorted({region for served in accounts.values() for region in served})
    lines += ['_NOT_SERVED: Final = "-"', "_REGISTRIES: Final = ("]
    lines += [*(f'    "{registry}",' for registry in accounts), ")", '_REGIONS: Final = """']
    lines += _aligned([(region, *(served.get(region, "-") for served in accounts.values())) for region in regions])
    return _START + "\n".join(lines) + _END


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


_END: Final = '''
"""
"""A row for each region: the account of each registry there."""
ACCOUNTS: Final[Mapping[str, Mapping[str, str]]] = {
    registry: {
        region: accounts[column]
        for region, *accounts in map(str.split, _REGIONS.strip().splitlines())
        if accounts[column] != _NOT_SERVED
    }
    for column, registry in enumerate(_REGISTRIES)
}
"""The account by registry and region."""
'''


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
