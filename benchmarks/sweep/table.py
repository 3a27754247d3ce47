"""A tabulated benchmark: the validation loss of many configurations of one network, after each epoch.

The network is scikit-learn's, on its digits: small enough to train all configurations here, once. A search is then a
matter of reading the table.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

CONFIGURATIONS: Final = 100
EPOCHS: Final = 27
_SEED: Final = 20_261_125
_DIVERGED: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class LossTable:
    """What a search would observe.

    Attributes:
        losses: A row for each configuration, a column for each epoch.
    """

    losses: NDArray[np.float64]

    @property
    def best(self) -> float:
        """The lowest loss of all."""
        return float(self.losses.min())

    def objective(self, *, one_of: int) -> float:
        """Return the loss that one of so many configurations comes to.

        Args:
            one_of: How many.
        """
        return float(np.quantile(self.losses.min(axis=1), 1 / one_of))

    @classmethod
    def kept(cls, path: Path, *, progress: Callable[[int], None]) -> Self:
        """Return the table that is kept in a file; trains all configurations where there is none yet.

        Args:
            path: The file.
            progress: Is called with the number of configurations that were trained.
        """
        if not path.exists():
            losses = []
            for number in range(CONFIGURATIONS):
                losses.append(_trained(number))
                progress(number + 1)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps([[round(loss, 5) for loss in row] for row in losses]))
        return cls(losses=np.array(json.loads(path.read_text())))


def _trained(number: int) -> list[float]:
    """Train one configuration; return its validation loss after each epoch."""
    # Here, because it takes seconds, and most who import this module read a table that is kept.
    from sklearn.datasets import load_digits
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    draw = np.random.default_rng([_SEED, number])
    options: dict[str, Any] = {
        "hidden_layer_sizes": (int(2 ** draw.uniform(2, 7)),),
        "learning_rate_init": float(10 ** draw.uniform(-4, 0)),
        "alpha": float(10 ** draw.uniform(-6, 0)),
        "batch_size": int(2 ** draw.integers(5, 9)),
        "momentum": float(draw.uniform(0, 0.99)),
    }
    images, digits = load_digits(return_X_y=True)
    train, validation, train_digits, validation_digits = train_test_split(
        images / 16, digits, test_size=0.6, random_state=0, stratify=digits
    )
    network = MLPClassifier(solver="sgd", random_state=number, **options)
    losses = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Some of them diverge, which is what a search is to find out.
        warnings.simplefilter("ignore")
        for _ in range(EPOCHS):
            try:
                network.partial_fit(train, train_digits, classes=np.arange(10))
                loss = float(log_loss(validation_digits, network.predict_proba(validation), labels=np.arange(10)))
            except ValueError:
                loss = _DIVERGED
            losses.append(min(loss, _DIVERGED) if np.isfinite(loss) else _DIVERGED)
    return losses
