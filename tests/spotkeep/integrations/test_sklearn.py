"""scikit-learn's estimators that learn batch by batch end with the same bits, however often they are interrupted."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

from spotkeep import Checkpointer, StateError, StateMismatchError, UsageError

NAMES = [
    "SGDClassifier that averages",
    "SGDClassifier with a generator",
    "SGDRegressor",
    "MLPClassifier",
    "MLPRegressor",
    "MultinomialNB",
    "GaussianNB",
    "MiniBatchKMeans",
    "IncrementalPCA",
    "LatentDirichletAllocation",
    "MiniBatchDictionaryLearning",
    "StandardScaler",
]


@pytest.fixture(scope="module")
def sk():
    """Imports scikit-learn where it is needed: each worker imports every test module, and this takes seconds."""
    from . import estimators

    assert list(estimators.ESTIMATORS) == NAMES
    return estimators


@pytest.mark.parametrize("name", NAMES)
def test_interrupted_after_any_step_it_has_learned_the_same(sk, tmp_path, name):
    made = sk.ESTIMATORS[name]
    whole = sk.anew(made)
    for step in range(sk.STEPS):
        sk.learn(whole, step)
    for stop_at in range(1, sk.STEPS + 1):
        estimator = sk.anew(made)
        with Checkpointer({"it": sk.EstimatorState(estimator)}, tmp_path, every_steps=1) as checkpointer:
            for step in checkpointer.steps(stop_at):
                assert step == stop_at - 1, "one at a time, each in a process of its own"
                sk.learn(estimator, step)
    assert sk.learned(estimator) == sk.learned(whole)


def test_what_only_pickle_could_bring_back_is_refused_by_name(sk):
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier().fit(sk.PIXELS[:50], sk.LABELS[:50])
    tree.labels = np.array([object()])
    with pytest.raises(StateError) as refused:
        sk.EstimatorState(tree).state_dict()
    assert refused.value.problems == (
        "DecisionTreeClassifier.tree_: sklearn.tree._tree.Tree cannot be saved without pickle; save what it was made "
        "from, or make it anew",
        "DecisionTreeClassifier.labels: an array of object cannot be saved without pickle; save what it was made from, "
        "or make it anew",
    )


def test_another_estimator_or_other_parameters_do_not_fit(sk, tmp_path):
    def checkpointer(estimator):
        return Checkpointer({"it": sk.EstimatorState(estimator)}, tmp_path)

    with checkpointer(sk.MultinomialNB(alpha=0.5)) as saving:
        saving.save(1)
    with pytest.raises(StateMismatchError, match="a MultinomialNB was saved, and this is a GaussianNB"):
        checkpointer(sk.GaussianNB()).restore()
    with pytest.raises(StateMismatchError, match=r"alpha was 0\.5 and is 2\.0"):
        checkpointer(sk.MultinomialNB(alpha=2.0)).restore()


def test_what_was_learned_otherwise_is_forgotten(sk, tmp_path):
    with Checkpointer({"it": sk.EstimatorState(sk.MultinomialNB())}, tmp_path) as checkpointer:
        checkpointer.save(1)
    knows = sk.MultinomialNB()
    sk.learn(knows, 0)
    Checkpointer({"it": sk.EstimatorState(knows)}, tmp_path).restore()
    assert not hasattr(knows, "feature_count_")


def test_a_checkpoint_makes_nothing_but_the_known_parts(sk):
    state = sk.EstimatorState(sk.MultinomialNB()).state_dict()
    with pytest.raises(KeyError):
        sk.EstimatorState(sk.MultinomialNB()).load_state_dict({**state, "learned": {"x": {"os.system": {}}}})


def test_folds_of_a_cross_validation_have_names_or_are_refused(sk, tmp_path, new_process):
    """As scikit-learn does it: a clone of the estimator for each fold, fitted on other rows."""
    from sklearn.model_selection import KFold

    def folds(*, stops_at=None, **options):
        learned = []
        for number, (rows, _) in enumerate(KFold(3).split(sk.PIXELS)):
            estimator = sk.anew(sk.ESTIMATORS["SGDRegressor"])
            name = {"name": f"fold-{number}"} if options.get("named") else {}
            with Checkpointer({"it": sk.EstimatorState(estimator)}, tmp_path, every_steps=1, **name) as checkpointer:
                for step in checkpointer.steps(4):
                    if (number, step) == stops_at:
                        raise InterruptedError
                    part = rows[step::40]
                    estimator.partial_fit(sk.PIXELS[part], sk.LABELS[part])
            learned.append(estimator.coef_.tobytes())
        return learned

    with pytest.raises(UsageError, match="ended in this process, after step 4"):
        folds()
    with pytest.raises(InterruptedError):
        folds(named=True, stops_at=(1, 2))
    new_process()
    again = folds(named=True)
    assert len(set(again)) == 3
    new_process()
    assert folds(named=True) == again, "all three have ended, and are given again"


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.preprocessing", None)
    monkeypatch.delitem(sys.modules, "spotkeep.integrations.sklearn")
    with pytest.raises(ImportError, match=r"install 'scikit-learn>=1\.6'"):
        importlib.import_module("spotkeep.integrations.sklearn")
