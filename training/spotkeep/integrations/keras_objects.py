"""Objects that a training with Keras uses beyond Keras' own.

They are found among the script's objects, saved and put back.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError, ends_the_process
from spotkeep.loaded import loaded
from spotkeep.state.encoding import encode_state, stateful_kind
from spotkeep.state.reached import ChangedAttributes, Reached, is_own, names_in_code, reached

_logger = logging.getLogger("spotkeep")

_KERAS_OBJECTS = (
    *(keras.Layer, keras.Loss, keras.Metric, keras.Optimizer, keras.random.SeedGenerator, keras.utils.PyDataset),
    *(keras.callbacks.Callback, keras.optimizers.schedules.LearningRateSchedule),
)


_KERAS_NOTES = frozenset(
    (
        *("stop_training", "stop_evaluating", "stop_predicting", "built", "compiled", "training", "run_eagerly"),
        *("steps_per_execution", "jit_compile", "stateful_context"),
    )
)
"""Attributes in which Keras notes its progress."""


_REMEDY = "keep it in a keras.Variable, or pass an object with state_dict and load_state_dict in state="


_REMEDY_OF_DATA = "shuffle an array of indices, or give the object state_dict and load_state_dict"


class FoundObjects:
    """Objects that a training uses beyond those that Keras gathers. A walk through the script's objects finds them.

    They are further optimizers, variables of losses and metrics, seeds, random generators, and torch's modules and
    optimizers. Objects with `state_dict` and `load_state_dict` are among them, and attributes that the training
    changes.

    Args:
        roots: Names and objects to begin with.
        followed: More of them, whose referred objects are taken, but not their own attributes.
        variables_elsewhere: Variables that are saved elsewhere.
        objects_elsewhere: Objects that are saved elsewhere.
        updated: Variables that an optimizer may update beside the found ones.
        of_data: The roots are the data. Then neither weights of models nor large arrays are saved.
        attributes: Attributes that change are saved. A compiled step has seen their first values only.
    """

    def __init__(
        self,
        roots: Mapping[str, Any],
        *,
        followed: Mapping[str, Any],
        variables_elsewhere: Sequence[Any] = (),
        objects_elsewhere: Sequence[Any] = (),
        updated: Sequence[Any] = (),
        of_data: bool = False,
        attributes: bool = True,
    ) -> None:
        self._roots = {**roots, **followed}
        found = reached(roots, through=_through())
        further = reached(followed, through=_through())
        known = {*map(id, variables_elsewhere)}
        self._optimizers = {
            one.path: _Optimizer(one.value, self)
            for one in _apart(found if of_data else [*found, *further])
            if isinstance(one.value, keras.Optimizer) and not {*map(id, one.value.variables)} & known
        }
        known.update(id(variable) for one in self._optimizers.values() for variable in one.variables)
        known.update(id(_raw(variable)) for variable in variables_elsewhere)
        self.variables = {}
        for one in _apart(found if of_data else [*found, *further]):
            variable = _variable(one.value)
            # Of a model that the data is made with the seeds change, and not the weights.
            if variable is not None and id(variable) not in known and not (of_data and variable.trainable):
                known.update((id(variable), id(_raw(variable))))
                self.variables[one.path] = variable
        self.updated = [*updated, *self.variables.values()]
        self._saved = [*variables_elsewhere, *self.updated]
        self.objects = self._stateful(
            [one for one in (*found, *further) if not (of_data and _is_of_torch_model(one.value))], objects_elsewhere
        )
        elsewhere = {*map(id, objects_elsewhere)}
        owners = [one for one in found if _keeps_attributes(one.value) and id(one.value) not in elsewhere]
        layers = [one.value for one in found if isinstance(one.value, keras.Layer)]
        self._trainable = _Trainable(layers if attributes else [], self.updated if attributes else [])
        self.attributes, self._watched_attributes = (
            ChangedAttributes(
                {one.path: one.value for one in owners if (attributes and not one.by_name) is is_saved},
                wanted=_counts,
                large=not of_data,
                remedy=_REMEDY_OF_DATA if of_data else _REMEDY,
            )
            for is_saved in (True, False)
        )

    def state(self) -> dict[str, Any]:
        """Give all of it, as a part of the state of a `Checkpointer`."""
        return {
            "variables": _Named(self.variables),
            "optimizers": dict(self._optimizers),
            "objects": dict(self.objects),
            "attributes": self.attributes,
            "trainable": self._trainable,
        }

    def require_all(self, model: Any) -> None:
        """Look once more after the first batch, which may create objects.

        Raises:
            UsageError: The state lacks objects. The message names them.
        """
        optimizers = [model.optimizer, *(one.optimizer for one in self._optimizers.values())]
        optimizers = [optimizer for optimizer in optimizers if optimizer is not None]
        saved = {*map(id, self._saved)}
        made = {id(variable) for optimizer in optimizers for variable in optimizer.variables}
        late = {
            id(one.value): f"{one.path} ({one.value.path})"
            for one in reached(self._roots, through=_through())
            if isinstance(one.value, keras.Variable) and id(one.value) not in saved | made
        }
        problems = [
            f"{variable.path}, which the optimizer {optimizer.name} updates"
            for optimizer in optimizers
            for variable in getattr(optimizer, "_trainable_variables", ())
            if id(variable) not in saved | late.keys()
        ]
        problems += late.values()
        if problems:
            raise UsageError(
                "the first batch made or used variables that the checkpoint does not hold: "
                f"{', '.join(sorted(problems))}. Make them before fit_resumably (call `build`, or the model once), as "
                "attributes of the model"
            )
        self._watched_attributes.warn_of_changes()

    def _stateful(self, candidates: Sequence[Reached], elsewhere: Sequence[Any]) -> dict[str, Any]:
        """Give the adapter of each object that has a state and is not Keras' own."""
        taken = {*map(id, elsewhere), *(id(part) for value in elsewhere for part in _modules(value))}
        values = {id(_raw(variable)) for variable in self._saved}
        stateful = {}
        for one in _apart(candidates):
            value = one.value
            if id(value) in taken or stateful_kind(value) is None or not _is_taken(value):
                continue
            taken.update(id(part) for part in _modules(value))
            saves = value
            if _modules(value):
                saves = _TorchModule(value, values)
                if not saves.state_dict():
                    continue
            try:
                encode_state({one.path: saves})
            except BaseException as error:  # the script's own code may say no in any way
                if ends_the_process(error):
                    raise
                _logger.warning("what %s keeps is not saved: %s", one.path, error)
            else:
                stateful[one.path] = saves
        return stateful


def _apart(found: Iterable[Reached]) -> list[Reached]:
    """Give each object once, each with a path of its own."""
    objects: dict[int, Reached] = {}
    paths: set[str] = set()
    for one in found:
        if id(one.value) not in objects:
            path = next(path for path in _numbered(one.path) if path not in paths)
            paths.add(path)
            objects[id(one.value)] = Reached(path, one.value, one.by_name)
    return list(objects.values())


def _numbered(path: str) -> Iterator[str]:
    yield path
    yield from (f"{path} ({number})" for number in itertools.count(2))


def _modules(value: Any) -> list[Any]:
    """Give a module of torch that is no layer of Keras, and all that is in it."""
    torch = loaded("torch")
    if torch is None or not isinstance(value, torch.nn.Module) or isinstance(value, keras.Layer):
        return []
    return list(value.modules())


def _is_of_torch_model(value: Any) -> bool:
    torch = loaded("torch")
    return torch is not None and isinstance(value, (torch.nn.Module, torch.optim.Optimizer))


def _is_taken(value: Any) -> bool:
    """Say whether an object's own state is to be saved. Keras saves variables, and a loader begins each pass anew."""
    if isinstance(value, keras.utils.PyDataset):
        return True
    return not isinstance(value, (*_KERAS_OBJECTS, *_torch_data_classes()[:1], Checkpointer))


def _keeps_attributes(value: Any) -> bool:
    if not hasattr(value, "__dict__") or isinstance(value, keras.callbacks.Callback):
        return False
    if isinstance(value, _KERAS_OBJECTS) and not isinstance(value, keras.utils.PyDataset):
        return True
    return is_own(type(value)) and stateful_kind(value) is None


def sees_attributes(model: Any) -> bool:
    """Say whether each step of a training runs the model's Python code."""
    backend = keras.backend.backend()
    return bool(model.run_eagerly or backend == "torch" or (backend == "jax" and not model.jit_compile))


def _counts(owner: Any, name: str) -> bool:
    """Say whether an attribute is the script's. Keras' own names begin with an underscore."""
    if not isinstance(owner, _KERAS_OBJECTS):
        return True
    kind: Any = type(owner)
    return name not in _KERAS_NOTES and (not name.startswith("_") or name in names_in_code(kind))


def _through() -> tuple[type, ...]:
    return (*_KERAS_OBJECTS, *_torch_data_classes())


def _torch_data_classes() -> tuple[type, ...]:
    data = loaded("torch.utils.data")
    return () if data is None else (data.DataLoader, data.Sampler, data.Dataset)


def _variable(value: Any) -> Any:
    """Give the variable that an object is or that holds its state. None without one."""
    if isinstance(value, keras.Variable):
        return value
    tensorflow = loaded("tensorflow")
    if tensorflow is not None and isinstance(value, tensorflow.random.Generator):
        return value.state
    return value if tensorflow is not None and isinstance(value, tensorflow.Variable) else None


def _raw(variable: Any) -> Any:
    """Give the backend's own object under a variable of Keras."""
    return variable.value if isinstance(variable, keras.Variable) else variable


class _Named:
    """Variables with the paths at which they were found."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables

    def state_dict(self) -> dict[str, Any]:
        return {path: _content(variable) for path, variable in self._variables.items()}

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        other = sorted(self._variables.keys() ^ values.keys())
        if other:
            raise ValueError(f"of these variables only the checkpoint, or only the script, knows: {', '.join(other)}")
        for path, value in values.items():
            self._variables[path].assign(value)


class _Optimizer:
    """An optimizer that `fit` does not know. It may make its variables in the first step only."""

    def __init__(self, optimizer: Any, beyond: FoundObjects) -> None:
        self.optimizer = optimizer
        self._beyond = beyond

    @property
    def variables(self) -> list[Any]:
        return list(self.optimizer.variables)

    def state_dict(self) -> dict[str, Any]:
        places = {id(variable): index for index, variable in enumerate(self._beyond.updated)}
        updated = getattr(self.optimizer, "_trainable_variables", ()) if self.optimizer.built else ()
        return {
            "built": bool(self.optimizer.built),
            "updated": [places.get(id(variable)) for variable in updated],
            "variables": [_content(variable) for variable in self.variables],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["built"] and not self.optimizer.built:
            known = self._beyond.updated
            if not all(place is not None and place < len(known) for place in state["updated"]):
                raise ValueError(f"the optimizer {self.optimizer.name} updated variables that are not here")
            self.optimizer.build([known[place] for place in state["updated"]])
        if len(state["variables"]) != len(self.variables):
            raise ValueError(
                f"the optimizer {self.optimizer.name} had {len(state['variables'])} variables, and here it has "
                f"{len(self.variables)}"
            )
        for variable, value in zip(self.variables, state["variables"]):
            variable.assign(value)


class _Trainable:
    """The layers and variables that are trained. A training may freeze some of them on its way."""

    def __init__(self, layers: Sequence[Any], variables: Sequence[Any]) -> None:
        # The outer layers come first. What one is set to is set in those inside it, too.
        self._all = [*layers, *variables]

    def state_dict(self) -> list[bool]:
        return [bool(one.trainable) for one in self._all]

    def load_state_dict(self, trainable: Sequence[bool]) -> None:
        if len(trainable) != len(self._all):
            raise ValueError(f"{len(trainable)} layers and variables were saved, and there are {len(self._all)} here")
        for one, value in zip(self._all, trainable):
            if one.trainable != value:
                one.trainable = value


class _TorchModule:
    """The state of a torch module beyond the variables of Keras.

    A layer that wraps a module takes its parameters alone.
    """

    def __init__(self, module: Any, elsewhere: set[int]) -> None:
        self._module = module
        self._elsewhere = elsewhere

    def _tensors(self) -> dict[str, Any]:
        tensors = self._module.state_dict(keep_vars=True)
        return {name: tensor for name, tensor in tensors.items() if id(tensor) not in self._elsewhere}

    def state_dict(self) -> dict[str, Any]:
        return {name: tensor.detach() for name, tensor in self._tensors().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        tensors = self._tensors()
        if tensors.keys() != state.keys():
            raise ValueError(f"the module has other tensors: {', '.join(sorted(tensors.keys() ^ state.keys()))}")
        for name, tensor in tensors.items():
            tensor.detach().copy_(state[name])


class GlobalSeed:
    """The seed of Keras' random numbers without a `SeedGenerator`. Keras makes it when it is first used."""

    def state_dict(self) -> dict[str, Any]:
        """Give the seed. None if there is none yet."""
        seeds = sys.modules[keras.random.SeedGenerator.__module__]
        generator = seeds.global_state.get_global_attribute("global_seed_generator")
        return {"seed": None if generator is None else _content(generator.state)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a seed that `state_dict` gave."""
        if state["seed"] is not None:
            sys.modules[keras.random.SeedGenerator.__module__].global_seed_generator().state.assign(state["seed"])


class Variables:
    """Keras variables in their order.

    Their names are not compared, because they count on from model to model in a process.
    """

    def __init__(self, model: Any, variables: Sequence[Any]) -> None:
        self._model = model
        self._variables = list(variables)

    def state_dict(self) -> list[Any]:
        """Give the values."""
        if keras.backend.backend() == "jax":
            self._model.jax_state_sync()  # between two batches `fit` has the values, and the variables have none
        return [_content(variable) for variable in self._variables]

    def load_state_dict(self, values: list[Any]) -> None:
        """Take values that `state_dict` gave.

        Raises:
            ValueError: If there are not as many variables.
        """
        if len(values) != len(self._variables):
            raise ValueError(f"{len(values)} variables were saved, and there are {len(self._variables)} here")
        if keras.backend.backend() == "jax":
            self._model.jax_state_sync()  # the next batch takes its values from the variables then
        for variable, value in zip(self._variables, values):
            variable.assign(value)


def objects_inside(value: Any) -> Iterator[Any]:
    """Give the objects that dictionaries and lists hold."""
    if isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from objects_inside(item)
    else:
        yield value


def _content(variable: Any) -> Any:
    value = _raw(variable)
    return value.detach() if keras.backend.backend() == "torch" else np.asarray(value)
