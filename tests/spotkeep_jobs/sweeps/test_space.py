"""What a parameter may be: how it is written, which value a fraction stands for, what is refused and in which words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from spotkeep_jobs.document.reading import problems_of
from spotkeep_jobs.sweeps.space import ContinuousParameter, DiscreteParameter, Space

WHOLE = st.integers(-(10**15), 10**15)
SCHEMA = Draft202012Validator(Space.model_json_schema())


class Sweep(BaseModel):
    parameters: Space


def space(**parameters: Any) -> Space:
    return Space.model_validate(parameters)


def problems(parameters: Any) -> list[str]:
    document = {"parameters": parameters}
    with pytest.raises(ValidationError) as caught:
        Sweep.model_validate(document)
    return [str(problem) for problem in problems_of(caught.value, Sweep, document=document)]


@st.composite
def written_parameters(draw: st.DrawFn) -> Any:
    """Return a parameter as a document may write it."""
    form = draw(st.sampled_from(["list", "range", "uniform", "log_uniform", "int_uniform", "log_int_uniform"]))
    if form == "list":
        values = st.one_of(st.booleans(), st.integers(-99, 99), st.text("abc", max_size=3))
        return draw(st.lists(values, min_size=1, max_size=5, unique_by=lambda value: str(value * 1).lower()))
    if form == "range":
        return {form: [*draw(st.tuples(WHOLE, WHOLE).filter(lambda ends: ends[0] < ends[1])), draw(st.integers(1, 99))]}
    positive = form.startswith("log")
    if form.endswith("int_uniform"):
        low = draw(st.integers(1 if positive else -(10**14), 10**14))
        return {form: [low, low + draw(st.integers(1, 10**14))]}
    low = draw(st.floats(1e-100, 1e90) if positive else st.floats(-1e90, 1e90))
    return {form: [low, low + draw(st.floats(1e-6, 1e6)) * max(abs(low), 1e-90)]}


class TestForms:
    def test_each_form_is_read(self) -> None:
        read = space(
            depth=[18, 34, 50], seed={"range": [0, 8]}, even={"range": [0, 7, 2]}, width={"int_uniform": [1, 8]},
            batch={"log_int_uniform": [16, 64]}, dropout={"uniform": [0, 0.5]}, lr={"log_uniform": [1e-5, 1e-2]},
        )  # fmt: skip
        assert read.root == {
            "depth": DiscreteParameter(values=(18, 34, 50)),
            "seed": DiscreteParameter(values=range(8)),
            "even": DiscreteParameter(values=range(0, 7, 2)),
            "width": DiscreteParameter(values=range(1, 9)),
            "batch": DiscreteParameter(values=range(16, 65), log=True),
            "dropout": ContinuousParameter(low=0, high=0.5),
            "lr": ContinuousParameter(low=1e-5, high=1e-2, log=True),
        }
        assert list(read.root) == ["depth", "seed", "even", "width", "batch", "dropout", "lr"]

    @given(st.dictionaries(st.text("xyz", min_size=1), written_parameters(), min_size=1, max_size=3))
    def test_what_is_written_again_reads_as_the_same_and_fits_the_schema(self, parameters: dict[str, Any]) -> None:
        read = Space.model_validate(parameters)
        again = read.model_dump(mode="json")
        assert Space.model_validate(again) == read
        assert list(again) == list(parameters)
        for document in (parameters, again):
            SCHEMA.validate(document)

    def test_a_space_of_values_has_a_size_and_one_with_real_numbers_has_none(self) -> None:
        assert space(a=[1, 2, 3], b={"int_uniform": [1, 10]}).size == 30
        assert space(a=[1, 2, 3], b={"uniform": [0, 1]}).size is None


class TestValues:
    @given(written_parameters(), st.floats(0, 1, exclude_max=True))
    def test_a_fraction_stands_for_a_value_within_the_range(self, written: Any, fraction: float) -> None:
        parameter = space(x=written).root["x"]
        value = parameter.at(fraction)
        if isinstance(parameter, DiscreteParameter):
            assert value in parameter.values
        else:
            assert parameter.low <= float(value) <= parameter.high

    def test_values_are_as_likely_as_the_form_says(self) -> None:
        def shares(written: Any, *, below: float) -> float:
            parameter = space(x=written).root["x"]
            return sum(float(parameter.at(number / 1000)) < below for number in range(1000)) / 1000

        assert shares({"uniform": [0, 10]}, below=2.5) == pytest.approx(0.25, abs=0.01)
        assert shares({"log_uniform": [1e-4, 1]}, below=1e-3) == pytest.approx(0.25, abs=0.01)
        assert shares({"int_uniform": [1, 4]}, below=2) == pytest.approx(0.25, abs=0.01)
        assert shares({"log_int_uniform": [1, 15]}, below=2) == pytest.approx(0.25, abs=0.01)
        assert shares([1, 2, 3, 4], below=2) == pytest.approx(0.25, abs=0.01)

    def test_a_real_number_has_few_digits(self) -> None:
        assert space(x={"log_uniform": [1e-5, 1e-2]}).at([0.123456789]) == {"x": 2.34623e-05}
        assert space(x={"uniform": [0, 1]}).at([0.123456789]) == {"x": 0.12346}

    @given(st.lists(st.lists(st.integers(), min_size=1, max_size=4, unique=True), min_size=1, max_size=4))
    def test_combinations_are_numbered_with_the_last_parameter_fastest(self, lists: list[list[int]]) -> None:
        searched = Space.model_validate({f"p{number}": values for number, values in enumerate(lists)})
        combinations = [searched.combination(index) for index in range(searched.size or 0)]
        positions = [tuple(values.index(value) for values, value in zip(lists, each.values(), strict=True))
                     for each in combinations]  # fmt: skip
        assert positions == sorted(positions)

    @given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1, exclude_max=True)), min_size=1, max_size=5))
    def test_a_point_and_its_index_stand_for_the_same_combination(self, drawn: list[tuple[int, float]]) -> None:
        searched = Space.model_validate({f"p{number}": {"range": [0, size]} for number, (size, _) in enumerate(drawn)})
        point = [fraction for _, fraction in drawn]
        assert searched.combination(searched.index_at(point)) == searched.at(point)

    def test_a_real_number_has_no_index(self) -> None:
        with pytest.raises(TypeError, match="parameter 'x' is continuous"):
            space(x={"uniform": [0, 1]}).combination(0)


class TestRefusals:
    @pytest.mark.parametrize(
        ("written", "said"),
        [
            (0.1, "is neither a list of values nor a range"),
            ([], "has 0 values; 1 to 1000 can be listed"),
            ([1, "1"], "lists 1 more than once"),
            ([1, 1.0], "more than once"),
            ([0, False], "more than once"),
            ([1, [2]], "is not text, a number or a boolean"),
            ([float("nan")], "lists a number that is not finite"),
            ([None], "has no value"),
            ({"log_unifrom": [1e-5, 1e-2]}, "Did you mean `log_uniform`?"),
            ({"uniform": [0, 1], "log": True}, "has 2 forms; a parameter has one"),
            ({}, "has 0 forms; a parameter has one"),
            ({"uniform": [0]}, "is not two numbers"),
            ({"uniform": ["0", 1]}, "is not two numbers"),
            ({"uniform": 5}, "is not two numbers"),
            ({"uniform": [0, float("inf")]}, "holds a number beyond 1e100"),
            ({"uniform": [0, float("nan")]}, "holds a number beyond 1e100"),
            ({"uniform": [0, 10**400]}, "holds a number beyond 1e100"),
            ({"uniform": [1, 1 + 1e-12]}, "is too narrow a range"),
            ({"uniform": [0, 5e-324]}, "is too narrow a range"),
            ({"log_uniform": [1e-2, 1e-5]}, "does not go up"),
            ({"log_uniform": [0, 1]}, "begins at 0 or below, where there is no logarithm"),
            ({"log_int_uniform": [0, 8]}, "begins at 0 or below, where there is no logarithm"),
            ({"int_uniform": [1, 2, 3]}, "is not 2 whole numbers"),
            ({"int_uniform": [1, 2.5]}, "is not 2 whole numbers"),
            ({"int_uniform": [0, 10**16]}, "holds a number beyond 10^15"),
            ({"range": [0, 8, 0]}, "is a range with the step 0"),
            ({"range": [8, 0]}, "is an empty range"),
            ({"range": [True, 8]}, "is not 2 or 3 whole numbers"),
        ],
    )
    def test_a_parameter_that_cannot_be_searched_is_refused_in_words(self, written: Any, said: str) -> None:
        [problem] = problems({"lr": written})
        assert problem.startswith("parameters.lr: ")
        assert said in problem

    def test_every_parameter_that_is_wrong_is_named(self) -> None:
        found = problems({"lr": {"uniform": [1, 0]}, "depth": [18], "wd": 0, "": [1]})
        assert [problem.partition(":")[0] for problem in found] == ["parameters.lr", "parameters.wd", "parameters.''"]

    @pytest.mark.parametrize("parameters", [[], 5, {}, {str(number): [1] for number in range(101)}])
    def test_what_is_no_space_is_refused_as_a_whole(self, parameters: Any) -> None:
        [problem] = problems(parameters)
        assert problem.startswith("parameters: ")
        assert "Write one parameter a line" in problem
