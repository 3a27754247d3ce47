"""The time of a synth of the whole app, with and without the rules, and against an empty app.

The empty app is that of `cdk init`. Neither it nor the synth without the rules loads the CDK's template validation.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import paired

TARGET_JUDGEMENT_SECONDS = 2.5
TARGET_STACKS_SECONDS = 2.5

_EMPTY_APP = "import aws_cdk; aws_cdk.App(builtin_cloud_formation_validation=False).synth()"
WITHOUT_RULES = (
    "import pathlib, sys; from spotkeep_stacks.synthesis import main; sys.exit(main(pathlib.Path.cwd(), judge=False))"
)
"""A synth that skips the rules, as Python's `-c` takes it."""


def measure(*, project_dir: Path, rounds: int) -> dict[str, Any]:
    """Time ``app.py`` with its rules and without, and an empty app, each a whole process.

    Args:
        project_dir: The checkout.
        rounds: Counted rounds of each.
    """
    with tempfile.TemporaryDirectory() as scratch:

        def synth(name: str, *command: str) -> Callable[[], None]:
            environment = synth_environment(Path(scratch) / name, project_dir=project_dir)
            return paired.process([sys.executable, *command], environment=environment, directory=project_dir)

        without_rules = synth("plain", "-c", WITHOUT_RULES)
        return {
            "judgement": _extra(
                synth("judged", "app.py"), without_rules, rounds=rounds, target_s=TARGET_JUDGEMENT_SECONDS
            ),
            "stacks": _extra(
                without_rules, synth("empty", "-c", _EMPTY_APP), rounds=rounds, target_s=TARGET_STACKS_SECONDS
            ),
        }


def synth_environment(outdir: Path, *, project_dir: Path) -> dict[str, str]:
    """Return the environment of a synth by hand, with bundles for this machine.

    Args:
        outdir: The folder of the assembly.
        project_dir: The checkout.
    """
    context = json.loads((project_dir / "cdk.json").read_text())["context"]
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "CDK_OUTDIR": str(outdir),
        "CDK_CONTEXT_JSON": json.dumps(context),
        # The address of no server. A synth opens no connection.
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }


def _extra(more: Callable[[], None], less: Callable[[], None], *, rounds: int, target_s: float) -> dict[str, Any]:
    with_it, without_it = paired.in_turn(more, less, rounds=rounds)
    extra = with_it.median - without_it.median
    return {
        "with": with_it.to_document(),
        "without": without_it.to_document(),
        "extra_s": round(extra, 3),
        "target_s": target_s,
        "met": extra <= target_s,
    }
