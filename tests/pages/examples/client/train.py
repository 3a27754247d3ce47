"""Goes down to the minimum of a parabola, and logs the loss."""

import argparse
import time

from spotkeep import Checkpointer

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
options = parser.parse_args()

state = {"model": {"weight": 4.0}}
with Checkpointer(state, every_steps=10) as checkpointer:
    for _ in checkpointer.steps(60):
        weight = state["model"]["weight"]
        state["model"]["weight"] = weight - options.lr * 2 * (weight - 1)
        time.sleep(0.02)
        checkpointer.log(validation_loss=(state["model"]["weight"] - 1) ** 2)
