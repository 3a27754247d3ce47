"""The space that a sweep searches, with the values that each parameter of a trial may have. Pure.

A parameter is discrete (a list of values, or whole numbers) or continuous (a range of real numbers). Both are read from
the forms that people write. Both give a value for each fraction of 0 to 1, so a search has only fractions to choose.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from pydantic import (
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    RootModel,
    WithJsonSchema,
    model_validator,
)

from spotkeep_jobs.document.command import MAX_HYPERPARAMETERS, read_hyperparameter, read_hyperparameter_name
from spotkeep_jobs.document.reading import json_bytes, nearest, wrong
from spotkeep_jobs.record.sweep import ParameterValue

MAX_VALUES: Final = 1_000
"""The longest list of values, as far as it fits into the sweep's record."""
_MAX_WHOLE: Final = 10**15
"""Whole numbers up to here are exact as floating-point numbers."""
_MAX_REAL: Final = 1e100
_NARROWEST: Final = 1e-9
"""The least width of a range of real numbers, relative to its ends.

At this width floating-point numbers are fine enough.
"""
_DIGITS: Final = 5
"""A value is rounded to about 100,000th parts of its range, so that people can read it."""


@dataclass(frozen=True, kw_only=True)
class DiscreteParameter:
    """A parameter with a number of values.

    Attributes:
        values: In their order: as they are listed, or whole numbers at equal distances.
        log: True if the logarithms of the values, not the values, are evenly likely.
    """

    values: Sequence[ParameterValue]
    log: bool = False

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.values)

    @property
    def longest(self) -> ParameterValue:
        """The value that is longest as text."""
        values = (self.values[0], self.values[-1]) if isinstance(self.values, range) else self.values
        return max(values, key=json_bytes)

    def index_at(self, fraction: float) -> int:
        """Return which value a fraction of the range stands for.

        Args:
            fraction: From 0 to below 1.
        """
        if not self.log:
            return int(fraction * self.size)
        low = int(self.values[0])
        # What lies between a whole number and the next one counts as the first.
        number = math.exp(math.log(low) + fraction * (math.log(low + self.size) - math.log(low)))
        return min(max(int(number) - low, 0), self.size - 1)

    def at(self, fraction: float) -> ParameterValue:
        """Return the value that a fraction of the range stands for.

        Args:
            fraction: From 0 to below 1.
        """
        return self.values[self.index_at(fraction)]

    def as_written(self) -> object:
        """Return it as a document writes it."""
        if not isinstance(self.values, range):
            return list(self.values)
        if self.log:
            return {"log_int_uniform": [self.values[0], self.values[-1]]}
        return {"range": [self.values.start, self.values.stop, self.values.step]}


@dataclass(frozen=True, kw_only=True)
class ContinuousParameter:
    """A parameter that is a real number.

    Attributes:
        low: The least value.
        high: The greatest value.
        log: True if the logarithms of the values, not the values, are evenly likely.
    """

    size: ClassVar[None] = None
    """There is no number of values."""
    low: float
    high: float
    log: bool = False

    @property
    def longest(self) -> float:
        """The end of the range that is longest as text. A value between the ends has few digits more."""
        return max(self.low, self.high, key=json_bytes)

    def at(self, fraction: float) -> float:
        """Return the value that a fraction of the range stands for, rounded.

        Args:
            fraction: From 0 to below 1.
        """
        if self.log:
            value = math.exp(math.log(self.low) + fraction * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + fraction * (self.high - self.low)
        return self.rounded(value)

    def rounded(self, value: float) -> float:
        """Return a value as a trial gets it, with few digits and within the range.

        Args:
            value: Any value, which arithmetic may have brought a little out of the range.
        """
        width = self.high - self.low
        part = min(width, value) if self.log else width
        return min(max(round(value, _DIGITS - math.floor(math.log10(part))), self.low), self.high)

    def as_written(self) -> object:
        """Return it as a document writes it."""
        return {"log_uniform" if self.log else "uniform": [self.low, self.high]}


Parameter: TypeAlias = DiscreteParameter | ContinuousParameter
_FORMS: Final = "Write a list of values, {range: [0, 8]}, {uniform: [0, 1]} or {log_uniform: [1e-5, 1e-2]}"


def read_parameter(value: object) -> Parameter:
    """Return the values that a parameter may have, from any of the forms in which it is written.

    Args:
        value: The value that was written, of any type.
    """
    if isinstance(value, DiscreteParameter | ContinuousParameter):
        return value
    if isinstance(value, list | tuple):
        return DiscreteParameter(values=_listed(value))
    if not isinstance(value, Mapping):
        raise wrong(
            "is neither a list of values nor a range", f"{_FORMS}; one value for all trials is a hyperparameter"
        )
    if (likely := _of_wandb(value)) is not None:
        raise wrong("is in no form that a parameter has", likely)
    if len(value) != 1:
        raise wrong(f"has {len(value)} forms; a parameter has one", _FORMS)
    [(form, ends)] = value.items()
    read = _READ_AS.get(form) if isinstance(form, str) else None
    if read is None:
        raise wrong("is in no form that a parameter has", nearest(form, tuple(_READ_AS)).rstrip("."))
    return read(ends)


def _of_wandb(value: Mapping[Any, object]) -> str | None:
    """Return the fix for a parameter as Weights & Biases writes it. None for any other."""
    if "values" in value and isinstance(value["values"], list | tuple):
        return f"Write the list alone: {json.dumps(list(value['values']), default=str)[:200]}"
    if "value" in value:
        return "One value for all trials is a hyperparameter"
    ends = [value.get("min"), value.get("max")]
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in ends):
        return None
    logarithmic = "log" in str(value.get("distribution", ""))
    form = f"{'int_' if all(isinstance(each, int) for each in ends) else ''}uniform"
    return f"Write {{{'log_' if logarithmic else ''}{form}: {json.dumps(ends)}}}"


def _listed(values: Sequence[object]) -> tuple[ParameterValue, ...]:
    if not 1 <= len(values) <= MAX_VALUES:
        raise wrong(f"has {len(values)} values; 1 to {MAX_VALUES} can be listed", "List the values, or write a range")
    texts = [read_hyperparameter(value) for value in values]
    scalars = [value for value in values if isinstance(value, str | int | float)]
    if any(isinstance(value, float) and not math.isfinite(value) for value in scalars):
        raise wrong("lists a number that is not finite", "Remove it")
    for text, value in zip(texts, scalars, strict=True):
        # 1 and "1" are one text to the script; 1, 1.0 and true are one value to Python.
        if texts.count(text) > 1 or scalars.count(value) > 1:
            raise wrong(f"lists {text[:80]} more than once", "List each value once")
    return tuple(scalars)


def _range(value: object) -> DiscreteParameter:
    numbers = _whole_numbers(value, counts=(2, 3), example="range: [0, 8] for 0 to 7, or range: [0, 8, 2]")
    if len(numbers) == 3 and numbers[2] == 0:
        raise wrong("is a range with the step 0", "Write the distance between two values")
    values = range(*numbers)
    if not values:
        raise wrong("is an empty range", "Write range: [start, stop], with stop above start; stop itself is left out")
    return DiscreteParameter(values=values)


def _int_uniform(value: object) -> DiscreteParameter:
    low, high = _whole_numbers(value, counts=(2,), example="int_uniform: [1, 8] for 1 to 8")
    _in_order(low, high)
    return DiscreteParameter(values=range(low, high + 1))


def _log_int_uniform(value: object) -> DiscreteParameter:
    low, high = _whole_numbers(value, counts=(2,), example="log_int_uniform: [16, 1024]")
    _in_order(low, high)
    _above_zero(low)
    return DiscreteParameter(values=range(low, high + 1), log=True)


def _uniform(value: object) -> ContinuousParameter:
    low, high = _real_numbers(value, example="uniform: [0, 1]")
    return ContinuousParameter(low=low, high=high)


def _log_uniform(value: object) -> ContinuousParameter:
    low, high = _real_numbers(value, example="log_uniform: [1e-5, 1e-2]")
    _above_zero(low)
    return ContinuousParameter(low=low, high=high, log=True)


def _whole_numbers(value: object, *, counts: tuple[int, ...], example: str) -> list[int]:
    numbers = list(value) if isinstance(value, list | tuple) else []
    if len(numbers) not in counts or any(isinstance(each, bool) or not isinstance(each, int) for each in numbers):
        raise wrong(f"is not {' or '.join(map(str, counts))} whole numbers", f"Write {example}")
    if any(abs(each) > _MAX_WHOLE for each in numbers):
        raise wrong("holds a number beyond 10^15", "Choose smaller numbers")
    return numbers


def _real_numbers(value: object, *, example: str) -> tuple[float, float]:
    numbers = list(value) if isinstance(value, list | tuple) else []
    if len(numbers) != 2 or any(isinstance(each, bool) or not isinstance(each, int | float) for each in numbers):
        raise wrong("is not two numbers", f"Write {example}")
    # Compared before they are converted: Python refuses to convert the largest whole numbers.
    if not all(-_MAX_REAL <= each <= _MAX_REAL for each in numbers):
        raise wrong("holds a number beyond 1e100", "Choose smaller numbers")
    low, high = map(float, numbers)
    _in_order(low, high)
    if high - low < max(_NARROWEST * max(abs(low), abs(high)), 1 / _MAX_REAL):
        raise wrong("is too narrow a range", "Choose ends further apart; one value for all trials is a hyperparameter")
    return low, high


def _in_order(low: float, high: float) -> None:
    if low >= high:
        raise wrong("does not go up", "Write the least value, then the greatest one")


def _above_zero(low: float) -> None:
    if low < 1 / _MAX_REAL:
        raise wrong("begins at 0 or below, where there is no logarithm", "Choose an end above 0, or leave log_ out")


_READ_AS: Final[Mapping[str, Callable[[object], Parameter]]] = MappingProxyType(
    {
        "range": _range,
        "uniform": _uniform,
        "log_uniform": _log_uniform,
        "int_uniform": _int_uniform,
        "log_int_uniform": _log_int_uniform,
    }
)


def _form(name: str, description: str, *, numbers: str = "number", most: int = 2) -> dict[str, Any]:
    ends = {"type": "array", "items": {"type": numbers}, "minItems": 2, "maxItems": most, "description": description}
    return {"type": "object", "properties": {name: ends}, "required": [name], "additionalProperties": False}


_PARAMETER_SCHEMA: Final = WithJsonSchema(
    {
        "anyOf": [
            {
                "type": "array",
                "items": {"type": ["string", "number", "boolean"]},
                "minItems": 1,
                "maxItems": MAX_VALUES,
                "description": "The values.",
            },
            _form("range", "[start, stop] or [start, stop, step]. stop is left out.", numbers="integer", most=3),
            _form("uniform", "The least and the greatest real number."),
            _form("log_uniform", "The same, with evenly likely logarithms."),
            _form("int_uniform", "The least and the greatest whole number.", numbers="integer"),
            _form("log_int_uniform", "The same, with evenly likely logarithms.", numbers="integer"),
        ]
    }
)


class Space(
    RootModel[
        dict[
            Annotated[str, BeforeValidator(read_hyperparameter_name)],
            Annotated[
                Parameter,
                PlainValidator(read_parameter),
                PlainSerializer(lambda parameter: parameter.as_written()),
                _PARAMETER_SCHEMA,
            ],
        ]
    ]
):
    """The values of each parameter of a trial, by name, in the order in which they are written."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _has_parameters(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            raise wrong("is not a mapping of names", "Write one parameter a line: lr: {log_uniform: [1e-5, 1e-2]}")
        if not 1 <= len(value) <= MAX_HYPERPARAMETERS:
            raise wrong(
                f"has {len(value)} parameters; 1 to {MAX_HYPERPARAMETERS} can be searched",
                "Write one parameter a line: lr: {log_uniform: [1e-5, 1e-2]}",
            )
        return value

    @property
    def size(self) -> int | None:
        """The number of combinations of values. None where a parameter is continuous."""
        discrete = [parameter.size for parameter in self.root.values() if parameter.size is not None]
        return math.prod(discrete) if len(discrete) == len(self.root) else None

    @property
    def longest(self) -> dict[str, ParameterValue]:
        """A combination that is as long as any, in which each parameter has its longest value."""
        return {name: parameter.longest for name, parameter in self.root.items()}

    def at(self, fractions: Sequence[float]) -> dict[str, ParameterValue]:
        """Return the combination that a point of the unit cube stands for.

        Args:
            fractions: One for each parameter, in their order, from 0 to below 1.
        """
        return {
            name: parameter.at(fraction)
            for (name, parameter), fraction in zip(self.root.items(), fractions, strict=True)
        }

    def combination(self, index: int) -> dict[str, ParameterValue]:
        """Return a combination of a space that has a number of them. The last parameter changes fastest.

        Args:
            index: From 0 to below `size`.

        Raises:
            TypeError: A parameter is continuous.
        """
        indices = {}
        for name, parameter in reversed(self.root.items()):
            index, indices[name] = divmod(index, _number_of_values(name, parameter))
        return {name: _discrete(name, parameter).values[indices[name]] for name, parameter in self.root.items()}

    def index_at(self, fractions: Sequence[float]) -> int:
        """Return the index of the combination that a point of the unit cube stands for.

        Args:
            fractions: One for each parameter, in their order, from 0 to below 1.

        Raises:
            TypeError: A parameter is continuous.
        """
        index = 0
        for (name, parameter), fraction in zip(self.root.items(), fractions, strict=True):
            index = index * _number_of_values(name, parameter) + _discrete(name, parameter).index_at(fraction)
        return index


def _discrete(name: str, parameter: Parameter) -> DiscreteParameter:
    if not isinstance(parameter, DiscreteParameter):
        raise TypeError(f"parameter {name!r} is continuous")
    return parameter


def _number_of_values(name: str, parameter: Parameter) -> int:
    return _discrete(name, parameter).size
