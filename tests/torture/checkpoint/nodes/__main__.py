"""Tortures checkpoints of several nodes and gives a verdict: ``python -m tests.torture.checkpoint.nodes``.

A run that is stopped goes on where it was, started with the same options. Its journal has the trials that are done.
"""

from __future__ import annotations

import logging
import sys

from tests.torture.checkpoint.nodes.story import NodeRecording, quick_copies, run_trial
from tests.torture.checkpoint.nodes.trials import GROUPS, plan
from tests.torture.checkpoint.nodes.worlds import NodeForge
from tests.torture.checkpoint.ranks.__main__ import Torture, main

NODES = Torture(
    name="nodes",
    groups=GROUPS,
    new_forge=NodeForge,
    record=NodeRecording,
    plan=plan,
    run_trial=run_trial,
    quick_trials=7,
)

if __name__ == "__main__":
    # Copies that do not reach S3 are what the trials are about.
    logging.disable(logging.WARNING)
    with quick_copies():
        sys.exit(main(NODES))
