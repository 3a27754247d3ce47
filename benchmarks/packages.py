"""How large what is uploaded is: each function's own code, the layer they share, the training bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def measure(*, assembly_dir: Path) -> dict[str, Any]:
    """Add up the assets of a synthesized app.

    Args:
        assembly_dir: The cloud assembly that ``cdk synth`` or ``cdk deploy`` wrote.

    Returns:
        Uncompressed bytes of each asset, by its display name.
    """
    sizes: dict[str, int] = {}
    for manifest in sorted(assembly_dir.glob("*.assets.json")):
        for asset in json.loads(manifest.read_text())["files"].values():
            path = assembly_dir / asset["source"]["path"]
            if asset["source"]["path"].endswith(".template.json"):
                continue
            sizes[asset.get("displayName", path.name)] = _bytes_of(path)
    return {"bytes": sizes}


def _bytes_of(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
