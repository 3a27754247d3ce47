"""scikit-learn's estimators that learn batch by batch (`partial_fit`), without pickle.

An estimator stores its learned values in attributes. Arrays, numbers, texts, random states and the optimizers of neural
networks are saved. Any other attribute is refused by name. Only pickle could restore it, and pickle can run code.
"""

from __future__ import annotations

from typing import Any

from spotkeep.errors import StateError

try:
    import numpy as np
    from sklearn.neural_network._stochastic_optimizers import AdamOptimizer, SGDOptimizer
    from sklearn.preprocessing import LabelBinarizer
except ImportError as error:
    raise ImportError(
        f"spotkeep.integrations.sklearn needs scikit-learn: install 'scikit-learn>=1.6' ({error})"
    ) from error

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
# What estimators keep inside. A checkpoint names one of these, and nothing else is ever made from it.
_PARTS: dict[str, Any] = {part.__name__: part for part in (AdamOptimizer, LabelBinarizer, SGDOptimizer)}
# Made anew from the parameters by each `partial_fit`.
_MADE_ANEW = frozenset({"_loss_function_"})


class EstimatorState:
    """The learned values of an estimator, for the state of a `Checkpointer`.

    ```python
    with Checkpointer({"classifier": EstimatorState(classifier)}, every_steps=100) as checkpointer:
        for step in checkpointer.steps(total_steps):
            classifier.partial_fit(*batch(step), classes=classes)
    ```

    A restore puts them into an estimator with the same parameters, in place, its random state included.

    Args:
        estimator: It may have learned something or not.
    """

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator

    def state_dict(self) -> dict[str, Any]:
        """Give the learned values.

        Raises:
            StateError: An attribute cannot be saved. The message names each.
        """
        problems: list[str] = []
        name, parameters = type(self._estimator).__name__, self._parameters()
        learned: dict[str, Any] = {}
        holders: dict[Any, str] = {}
        for attribute, value in vars(self._estimator).items():
            if attribute in _MADE_ANEW or (attribute in parameters and not _is_random_state(value)):
                continue
            # Two attributes may be one array (an average and what it is used as), which learning goes on to change.
            memory = _memory(value)
            if memory is not None and memory in holders:
                learned[attribute] = {"same as": holders[memory]}
            else:
                holders[memory] = attribute
                learned[attribute] = _saved(value, f"{name}.{attribute}", problems)
        if problems:
            raise StateError(problems)
        plain = {attribute: value for attribute, value in parameters.items() if isinstance(value, _PLAIN)}
        return {"class": name, "parameters": plain, "learned": learned}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace all learned values by those that `state_dict` gave.

        Raises:
            ValueError: It is another estimator, or has other parameters.
        """
        here = type(self._estimator).__name__
        if state["class"] != here:
            raise ValueError(f"a {state['class']} was saved, and this is a {here}")
        parameters = self._parameters()
        changed = [
            f"{name} was {value!r} and is {parameters.get(name)!r}"
            for name, value in state["parameters"].items()
            if name not in parameters or not _same(parameters[name], value)
        ]
        if changed:
            raise ValueError(f"the {here} has other parameters than the one that was saved: {', '.join(changed)}")
        attributes = vars(self._estimator)
        for name in [name for name in attributes if name not in parameters]:
            del attributes[name]
        for name, value in state["learned"].items():
            one_array = type(value) is dict and "same as" in value
            attributes[name] = attributes[value["same as"]] if one_array else _restored(value)

    def _parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = self._estimator.get_params(deep=False)
        return parameters


def _saved(value: Any, path: str, problems: list[str]) -> Any:
    """Turn a value into plain ones. A dictionary with one key names its kind."""
    if isinstance(value, _PLAIN):
        return value
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value
    if type(value) in (list, tuple):
        return type(value)(_saved(item, f"{path}[{index}]", problems) for index, item in enumerate(value))
    if type(value) is dict:
        return {"dict": {key: _saved(item, f"{path}[{key!r}]", problems) for key, item in value.items()}}
    if _is_random_state(value):
        return {"RandomState": value.get_state(legacy=False)}
    if _PARTS.get(type(value).__name__) is type(value):
        attributes = {name: _saved(item, f"{path}.{name}", problems) for name, item in vars(value).items()}
        return {type(value).__name__: attributes}
    kind = (
        f"an array of {value.dtype}"
        if type(value) is np.ndarray
        else f"{type(value).__module__}.{type(value).__name__}"
    )
    problems.append(f"{path}: {kind} cannot be saved without pickle; save what it was made from, or make it anew")
    return None


def _restored(value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_restored(item) for item in value)
    if type(value) is not dict:
        return value
    ((kind, body),) = value.items()
    if kind == "dict":
        return {key: _restored(item) for key, item in body.items()}
    if kind == "RandomState":
        random = np.random.RandomState()
        random.set_state(body)
        return random
    part = object.__new__(_PARTS[kind])
    vars(part).update({name: _restored(item) for name, item in body.items()})
    return part


def _memory(value: Any) -> Any:
    """Give the identity of an array's memory and form, which two arrays may share. None for any other value."""
    if type(value) is not np.ndarray or not value.size:
        return None
    return (value.__array_interface__["data"][0], value.dtype.str, value.shape, value.strides)


def _is_random_state(value: Any) -> bool:
    return isinstance(value, np.random.RandomState)


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))
