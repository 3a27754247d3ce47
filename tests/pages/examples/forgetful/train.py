"""Saves each fifth step and never loads what it saved."""

import os
import pathlib
import pickle
import time

folder = pathlib.Path(os.environ["SPOTKEEP_CHECKPOINT_DIR"])
total = 0
for step in range(1, 61):
    total += step
    time.sleep(0.1)
    print(f"step {step}", flush=True)
    if step % 5 == 0:
        (folder / "partial").write_bytes(pickle.dumps({"step": step, "total": total}))
        (folder / "partial").rename(folder / f"step-{step:03}.pkl")
(pathlib.Path(os.environ["SM_MODEL_DIR"]) / "model.txt").write_text(f"{total}\n")
