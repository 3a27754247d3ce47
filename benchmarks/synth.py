"""Synth of the whole app against an empty app of the same CDK version: what our own stacks add.

Measured twice: with every rule applied, as on the first synth of changed inputs, and again, when the inputs are known
to have passed. The empty app is what `cdk init` makes; it starts the CDK's own template validation each time.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import paired

TARGET_EXTRA_SECONDS = 1.0

_EMPTY_APP = "import aws_cdk\naws_cdk.App().synth()\n"


def measure(*, project_dir: Path, rounds: int) -> dict[str, Any]:
    """Time ``app.py`` and an empty app in turn, each a whole process with the context that the CDK CLI passes.

    Args:
        project_dir: The checkout.
        rounds: Counted rounds of each.
    """
    return {
        "target_extra_s": TARGET_EXTRA_SECONDS,
        "judged": _against_empty_app(project_dir, rounds=rounds, validation="always"),
        # The uncounted first round makes the inputs known.
        "repeated": _against_empty_app(project_dir, rounds=rounds, validation="when-changed"),
    }


def _against_empty_app(project_dir: Path, *, rounds: int, validation: str) -> dict[str, Any]:
    context = json.loads((project_dir / "cdk.json").read_text())["context"]
    with tempfile.TemporaryDirectory() as scratch:
        empty_app = Path(scratch) / "empty_app.py"
        empty_app.write_text(_EMPTY_APP)

        def environment(name: str) -> dict[str, str]:
            return {
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "CDK_OUTDIR": str(Path(scratch) / name),
                "CDK_CONTEXT_JSON": json.dumps({**context, "lambda_platform": "host", "validation": validation}),
            }

        ours, empty = paired.in_turn(
            paired.process([sys.executable, "app.py"], environment=environment("ours"), directory=project_dir),
            paired.process([sys.executable, str(empty_app)], environment=environment("empty"), directory=project_dir),
            rounds=rounds,
        )
    extra = ours.median - empty.median
    return {
        "ours": ours.to_document(),
        "empty_app": empty.to_document(),
        "extra_s": round(extra, 3),
        "met": extra <= TARGET_EXTRA_SECONDS,
    }
