"""scikit-learn's estimators that learn batch by batch end with the same bits, however often they are interrupted."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import IncrementalPCA, LatentDirichletAllocation, MiniBatchDictionaryLearning
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from spotkeep import Checkpointer, StateError, StateMismatchError
from spotkeep.integrations.sklearn import EstimatorState

STEPS, BATCH = 6, 40
PIXELS, LABELS = load_digits(return_X_y=True)
PIXELS = PIXELS / 16.0

ESTIMATORS = [
    SGDClassifier(random_state=0, average=True),
    SGDClassifier(random_state=np.random.RandomState(3), loss="log_loss"),
    SGDRegressor(random_state=0),
    MLPClassifier((8,), random_state=1),
    MLPRegressor(hidden_layer_sizes=(8,), solver="sgd", random_state=1),
    MultinomialNB(),
    GaussianNB(),
    MiniBatchKMeans(4, n_init=1, random_state=0),
    IncrementalPCA(8),
    LatentDirichletAllocation(4, random_state=0),
    MiniBatchDictionaryLearning(4, random_state=0),
    StandardScaler(),
]


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


@pytest.mark.parametrize("made", ESTIMATORS, ids=lambda made: type(made).__name__)
def test_interrupted_after_any_step_it_has_learned_the_same(tmp_path, made):
    whole = anew(made)
    for step in range(STEPS):
        learn(whole, step)
    for stop_at in range(1, STEPS + 1):
        estimator = anew(made)
        with Checkpointer({"it": EstimatorState(estimator)}, tmp_path, every_steps=1) as checkpointer:
            for step in checkpointer.steps(stop_at):
                assert step == stop_at - 1, "one at a time, each in a process of its own"
                learn(estimator, step)
    assert learned(estimator) == learned(whole)


def test_what_only_pickle_could_bring_back_is_refused_by_name():
    tree = DecisionTreeClassifier().fit(PIXELS[:50], LABELS[:50])
    tree.labels = np.array([object()])
    with pytest.raises(StateError) as refused:
        EstimatorState(tree).state_dict()
    assert refused.value.problems == (
        "DecisionTreeClassifier.tree_: sklearn.tree._tree.Tree cannot be saved without pickle; save what it was made "
        "from, or make it anew",
        "DecisionTreeClassifier.labels: an array of object cannot be saved without pickle; save what it was made from, "
        "or make it anew",
    )


def test_another_estimator_or_other_parameters_do_not_fit(tmp_path):
    def checkpointer(estimator):
        return Checkpointer({"it": EstimatorState(estimator)}, tmp_path)

    with checkpointer(MultinomialNB(alpha=0.5)) as saving:
        saving.save(1)
    with pytest.raises(StateMismatchError, match="a MultinomialNB was saved, and this is a GaussianNB"):
        checkpointer(GaussianNB()).restore()
    with pytest.raises(StateMismatchError, match=r"alpha was 0\.5 and is 2\.0"):
        checkpointer(MultinomialNB(alpha=2.0)).restore()


def test_what_was_learned_otherwise_is_forgotten(tmp_path):
    with Checkpointer({"it": EstimatorState(MultinomialNB())}, tmp_path) as checkpointer:
        checkpointer.save(1)
    knows = MultinomialNB()
    learn(knows, 0)
    Checkpointer({"it": EstimatorState(knows)}, tmp_path).restore()
    assert not hasattr(knows, "feature_count_")


def test_a_checkpoint_makes_nothing_but_the_known_parts():
    state = EstimatorState(MultinomialNB()).state_dict()
    with pytest.raises(KeyError):
        EstimatorState(MultinomialNB()).load_state_dict({**state, "learned": {"x": {"os.system": {}}}})


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.preprocessing", None)
    monkeypatch.delitem(sys.modules, "spotkeep.integrations.sklearn")
    with pytest.raises(ImportError, match=r"install 'scikit-learn>=1\.6'"):
        importlib.import_module("spotkeep.integrations.sklearn")
