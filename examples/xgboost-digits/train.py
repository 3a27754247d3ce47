"""Learn to read handwritten digits with XGBoost, from CSV files as SageMaker's XGBoost image gets them.

Two lines make it resumable. One imports `train_resumably`. The other calls it in place of `xgboost.train`.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import xgboost

from spotkeep.integrations.xgboost import train_resumably


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    # Hyperparameters are arguments, as in a script of SageMaker's XGBoost container.
    parser.add_argument("--max_depth", type=int, default=4)
    parser.add_argument("--eta", type=float, default=0.2)
    parser.add_argument("--subsample", type=float, default=0.8)
    parser.add_argument("--num_round", type=int, default=60)
    parser.add_argument("--rounds_per_step", type=int, default=10)
    parser.add_argument("--train", type=Path, default=os.environ.get("SM_CHANNEL_TRAIN"))
    parser.add_argument("--validation", type=Path, default=os.environ.get("SM_CHANNEL_VALIDATION"))
    parser.add_argument("--model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR", "model"))
    return parser.parse_args()


def digits(part):
    """Return scikit-learn's digits, where no channel gives others. Four fifths are for training."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    validates = np.arange(len(labels)) % 5 == 0
    chosen = validates if part == "validation" else ~validates
    return xgboost.DMatrix(pixels[chosen], labels[chosen])


def loaded(folder, part):
    """Return the rows of every CSV file of a channel, with the label first and no header."""
    if folder is None:
        return digits(part)
    rows = np.concatenate([np.loadtxt(path, delimiter=",", ndmin=2) for path in sorted(Path(folder).glob("*.csv"))])
    return xgboost.DMatrix(rows[:, 1:], rows[:, 0])


def main():
    options = parsed()
    train, validation = loaded(options.train, "train"), loaded(options.validation, "validation")
    params = {
        "objective": "multi:softmax",
        "num_class": 10,
        "eval_metric": "merror",
        "max_depth": options.max_depth,
        "eta": options.eta,
        "subsample": options.subsample,
    }
    booster = train_resumably(
        params,
        train,
        options.num_round,
        evals=[(validation, "validation")],
        verbose_eval=10,
        rounds_per_step=options.rounds_per_step,
        every_steps=1,
    )
    wrong = np.mean(booster.predict(validation) != validation.get_label())
    print(f"done: {booster.num_boosted_rounds()} rounds, accuracy {1 - wrong:.3f}", flush=True)
    Path(options.model_dir).mkdir(parents=True, exist_ok=True)
    booster.save_model(Path(options.model_dir) / "xgboost-model.json")


if __name__ == "__main__":
    main()
