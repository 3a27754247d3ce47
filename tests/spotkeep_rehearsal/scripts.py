"""A small training in plain Python with a switch for each way to be wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

TRAIN = """
import argparse, os, pickle, random, signal, subprocess, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoints", default="ckpt")
parser.add_argument("--wrong", default="")
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--quiet", action="store_true")
parser.add_argument("--noise", action="store_true")
parser.add_argument("--tidy", action="store_true")
parser.add_argument("--numbered", action="store_true")
parser.add_argument("--out", default="model.pkl")
options = parser.parse_args()
print("loading 3 workers, 120 samples")
if options.wrong == "code-1-on-notice":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
if options.wrong == "code-0-on-notice":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if options.wrong == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.wrong == "orphan":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
if options.wrong == "hangs":
    time.sleep(300)
if options.wrong == "raises":
    raise SystemExit("no data here")
folder = options.checkpoints
os.makedirs(folder, exist_ok=True)
draw = random.Random() if options.noise else random.Random(1)
weight, momentum, start = 10.0, 0.0, 0
for name in sorted(os.listdir(folder), reverse=True):
    try:
        with open(os.path.join(folder, name), "rb") as file:
            state = pickle.load(file)
    except (EOFError, pickle.UnpicklingError, KeyError):
        if options.wrong == "torn":
            raise
        continue
    if options.wrong != "ignores":
        start = state["epoch"] + 1
        weight = weight if options.wrong == "no-weights" else state["weight"]
        momentum = momentum if options.wrong == "no-momentum" else state["momentum"]
        if options.wrong != "no-random-state" and not options.noise:
            draw.setstate(state["draw"])
    if options.wrong == "no-epoch":
        start = 0
    break
for epoch in range(start, options.epochs):
    for _ in range(10):
        time.sleep(0.016)  # On a busy machine a loss comes late, and the last one comes two epochs before the end.
        slope = 0.1 * weight + 0.01 * draw.gauss(0, 1)
        momentum = 0.9 * momentum + slope
        weight -= 0.1 * momentum
    if options.wrong != "never-saves":
        name = f"epoch-{epoch:03d}.pkl" if options.numbered else "newest.pkl"
        state = {"weight": weight, "momentum": momentum, "epoch": epoch, "draw": draw.getstate(), "when": time.time()}
        draft = os.path.join(os.path.dirname(folder) or ".", "draft")
        with open(draft, "wb") as file:
            pickle.dump(state, file)
        os.replace(draft, os.path.join(folder, name))
    if not options.quiet:
        print(f"epoch {epoch}/{options.epochs} loss {weight * weight:.6f} took {random.SystemRandom().random():.2f}s")
with open(options.out, "wb") as file:
    pickle.dump({"weight": weight}, file)
if options.tidy:
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
print("done")
"""


def write_training(folder: Path) -> Path:
    """Write the training into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    return folder


def rehearse(
    folder: Path, *options: str, script: str = "train.py", arguments: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Rehearse a script in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "spotkeep_rehearsal", *options, "--", sys.executable, script, *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a rehearsal. Its temporary files lie beside the folder."""
    scratch = folder.parent / "temporary"
    scratch.mkdir(exist_ok=True)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "cli"), str(ROOT / "training")]),
        "TMPDIR": str(scratch),
        "OMP_NUM_THREADS": "1",
    }
