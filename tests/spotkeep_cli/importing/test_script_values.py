"""Values of a script are read as Python would make them, or are said to be computed: never another value."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.importing.script_values import Computed, Configuration, ScriptValues, computed_in

CLASSES = {"Compute": (), "TrainingInput": ("s3_data",)}


def value_of(expression: str, *, script: str = "") -> Any:
    tree = ast.parse(f"{script}\nresult = {expression}")
    last = tree.body[-1]
    assert isinstance(last, ast.Assign)
    return ScriptValues(tree, positional=CLASSES, before=last.lineno).value(last.value)


@pytest.mark.parametrize(
    "expression",
    ["1 + 2 * 3", "-1e-3", "'a' + 'b'", "[1, 'x', None, True]", "{'a': {'b': [1]}}", "dict(a=1, b=[2])",
     "dict({'a': 1}, b=2)", "{**{'a': 1}, 'a': 2}", "dict(a=1, **{'b': 2})", "f'{1}-{2}'"],
)  # fmt: skip
def test_literals_are_what_python_makes_of_them(expression: str) -> None:
    assert value_of(expression) == eval(expression)  # noqa: S307 - the text is this test's


@pytest.mark.parametrize(
    "expression",
    ["'{:>1000000000}'.format(1)", "'{!r}'.format('a')", "'{}{}'.format('a')", "'{'.format()", "'{a.b}'.format(a=1)",
     "f() if True else 1", "1 if f() else 2", "1 if {} else 2", "{**other, 'a': 1}['a']", "[1][1]", "{'a': f()}['a']",
     "{'a': 1}['b']", "not f()", "str(f())", "'%1000000000d' % 1", "'%d' % 1.5",
     "'%s%s' % 'a'", "7 % 2", "','.join(['a'])", "os.path.join(*parts)"],
)  # fmt: skip
def test_what_python_would_have_to_run_is_computed(expression: str) -> None:
    assert value_of(expression) == Computed(ast.unparse(ast.parse(expression)))


def test_paths_are_joined_as_on_linux() -> None:
    assert value_of("os.path.join('s3://a', f'{1}', 'train')") == "s3://a/1/train"


FILLED = [
    "a = {}\na['x'] = 1",
    "a = {'x': 0}\na['x'] = 1\na['y'] = [2]",
    "a = dict(x=1)\na.update(y=2, z=3)",
    "a = dict(x=1)\na.update({'y': 2}, z=3)",
    "b = 5\na = {'x': b}\na['y'] = b",
]
CHANGED = [
    "a = {'x': 1}\nif chosen:\n    a['x'] = 2",
    "a = {'x': 1}\nfor each in range(3):\n    a[str(each)] = each",
    "a = {'x': 1}\na[name] = 2",
    "a = {'x': 1}\ndel a['x']",
    "a = {'x': 1}\na.pop('x')",
    "a = {'x': 1}\na['y']['z'] = 1",
    "a = {'x': 1}\na |= other",
    "a = [1]\na.append(2)",
    "a = [1]\na[0] = 2",
    "a = 1\na += 1",
    "a = 1\nwith opened() as a: pass",
    "a = 1\nfor a in range(3): pass",
    "a = 1\ntry: pass\nexcept ValueError as a: pass",
    "a = 1\nimport b as a",
    "a = 1\ndef f(a): pass",
    "a = 1\ndef f():\n    global a\n    a = 2",
    "a = 1\n(a := 2)",
    "a = 1\nmatch b:\n    case a: pass",
    "a = Compute()\na.instance_count = 2",
    "(a, b) = 1, 2",
    "a = {}\nb = a\nb['x'] = 1",
    "a = {}\nb = a\nb['x'].pop()",
    "a = {}\ndef fill(mapping): mapping['x'] = 1\nfill(a)",
]


@pytest.mark.parametrize("script", FILLED)
def test_a_mapping_that_is_filled_is_all_that_it_is_filled_with(script: str) -> None:
    names: dict[str, Any] = {}
    exec(script, names)  # noqa: S102 - the text is this test's
    assert value_of("a", script=script) == names["a"]


@pytest.mark.parametrize("script", CHANGED)
def test_what_a_script_changes_on_its_way_is_computed(script: str) -> None:
    assert value_of("a", script=script) == Computed("a")


def test_a_mapping_that_is_filled_after_its_use_is_computed() -> None:
    tree = ast.parse("a = {}\nuse(a)\na['x'] = 1")
    [_, used, _] = tree.body
    assert ScriptValues(tree, positional={}, before=used.lineno).value(ast.Name("a")) == Computed("a")


def test_what_is_computed_in_a_mapping_or_a_list_leaves_the_rest() -> None:
    value = value_of("{'a': 1, 'b': f(), **other, 'c': [1, g()]}")
    assert value == {"a": 1, "b": Computed("f()"), "**other": Computed("other"), "c": [1, Computed("g()")]}
    assert computed_in(value) == Computed("f()")
    assert computed_in(value_of("{'a': [1, {'b': 2}]}")) is None


def test_arguments_have_their_names_whatever_way_they_are_given() -> None:
    tree = ast.parse("more = {'b': 2}\ncall('x', f(), 3, *rest, a=1, **more, **unknown)")
    statement = tree.body[-1]
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    arguments = ScriptValues(tree, positional={}).arguments(statement.value, positional=("first", "second"))
    assert arguments == {
        "first": "x",
        "second": Computed("f()"),
        "argument 3": 3,
        "*arguments": Computed("*rest"),
        "a": 1,
        "b": 2,
        "**unknown": Computed("unknown"),
    }


def test_an_object_has_its_class_and_arguments_by_whatever_name_it_is_imported() -> None:
    value = value_of("[TI('s3://a/'), sagemaker.inputs.TrainingInput(x=f())]",
                     script="from sagemaker.inputs import TrainingInput as TI")  # fmt: skip
    assert value == [{"s3_data": "s3://a/"}, {"x": Computed("f()")}]
    assert all(isinstance(each, Configuration) and each.kind == "TrainingInput" for each in value)


@given(
    st.recursive(
        st.sampled_from(["1", "'x'", "None", "f()", "name", "1.5", "True"]),
        lambda inner: (
            st.builds("[{}, {}]".format, inner, inner)
            | st.builds("{{'a': {}, 'b': {}}}".format, inner, inner)
            | st.builds("dict(a={}, b={})".format, inner, inner)
            | st.builds("({} + {})".format, inner, inner)
        ),
        max_leaves=8,
    )
)
def test_a_value_is_that_of_python_or_computed(expression: str) -> None:
    read = value_of(expression, script="name = 2")
    try:
        expected = eval(expression, {"name": 2, "f": object})  # noqa: S307
    except TypeError:
        assert computed_in(read) is not None
        return
    assert computed_in(read) is not None or read == expected
