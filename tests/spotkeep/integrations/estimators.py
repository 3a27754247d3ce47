"""scikit-learn's estimators that learn batch by batch, and the digits that they learn."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import IncrementalPCA, LatentDirichletAllocation, MiniBatchDictionaryLearning
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler

from spotkeep.integrations.sklearn import EstimatorState

STEPS, BATCH = 6, 40
PIXELS, LABELS = load_digits(return_X_y=True)
PIXELS = PIXELS / 16.0

ESTIMATORS = {
    "SGDClassifier that averages": SGDClassifier(random_state=0, average=True),
    "SGDClassifier with a generator": SGDClassifier(random_state=np.random.RandomState(3), loss="log_loss"),
    "SGDRegressor": SGDRegressor(random_state=0),
    "MLPClassifier": MLPClassifier((8,), random_state=1),
    "MLPRegressor": MLPRegressor(hidden_layer_sizes=(8,), solver="sgd", random_state=1),
    "MultinomialNB": MultinomialNB(),
    "GaussianNB": GaussianNB(),
    "MiniBatchKMeans": MiniBatchKMeans(4, n_init=1, random_state=0),
    "IncrementalPCA": IncrementalPCA(8),
    "LatentDirichletAllocation": LatentDirichletAllocation(4, random_state=0),
    "MiniBatchDictionaryLearning": MiniBatchDictionaryLearning(4, random_state=0),
    "StandardScaler": StandardScaler(),
}


def learn(estimator, step):
    batch = slice(step * BATCH, (step + 1) * BATCH)
    if isinstance(estimator, (SGDClassifier, MLPClassifier, MultinomialNB, GaussianNB)):
        estimator.partial_fit(PIXELS[batch], LABELS[batch], classes=np.arange(10))
    elif isinstance(estimator, (SGDRegressor, MLPRegressor)):
        estimator.partial_fit(PIXELS[batch], LABELS[batch])
    else:
        estimator.partial_fit(PIXELS[batch])


def anew(estimator):
    """As a script makes it again. sklearn's clone would share the random state."""
    parameters = estimator.get_params(deep=False)
    if isinstance(parameters.get("random_state"), np.random.RandomState):
        parameters["random_state"] = np.random.RandomState(3)
    return type(estimator)(**parameters)


def learned(estimator):
    return repr(EstimatorState(estimator).state_dict()).encode(), [
        value.tobytes() for value in vars(estimator).values() if isinstance(value, np.ndarray)
    ]
