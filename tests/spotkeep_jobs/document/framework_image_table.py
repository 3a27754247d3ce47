"""Writes the launcher's table of AWS's own images from the data of the SageMaker SDK.

`python -m tests.spotkeep_jobs.document.framework_image_table` writes it again when the SDK of the lock is a newer one.
The SDK itself is too heavy for a function.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def table_source() -> str:
    """Return the table's module, as it is with this SDK."""
    accounts: dict[str, Mapping[str, str]] = {}
    source = TABLE.read_text()
    for name, families in (("FRAMEWORK_IMAGES", FRAMEWORKS), ("ALGORITHM_IMAGES", ALGORITHMS)):
        rows = []
        for family in families:
            for version, path, registries in _images(family):
                served = {region: account for region, account in registries.items() if not _ELSEWHERE.match(region)}
                registry = next((name for name, known in accounts.items() if known == served), None)
                if registry is None:
                    registry = family if family not in accounts else f"{family}-{version}"
                    accounts[registry] = served
                rows.append((f"{family}-{version}", registry, path))
        source = _with_rows(source, table=name, rows=_aligned(rows))
    regions = sorted({region for served in accounts.values() for region in served})
    rows_of_regions = [(region, *(served.get(region, "-") for served in accounts.values())) for region in regions]
    header = " ".join(["region", *accounts])
    return _with_rows(source, table="_ACCOUNTS", rows=[header, *_aligned(rows_of_regions)])


def _with_rows(source: str, *, table: str, rows: Iterable[str]) -> str:
    """Return the module with other rows in one of its tables."""
    begins = source.index('"""\n', source.index(f"{table}: Final = ")) + len('"""\n')
    ends = source.index('"""', begins)
    return source[:begins] + "".join(f"{row}\n" for row in rows) + source[ends:]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


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
