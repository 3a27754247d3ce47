"""Pictures have their words, numbers that can be read, and no label over another."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spotkeep_pages
from spotkeep_cli.errors import CommandLineError
from spotkeep_cli.rendering.pictures import (
    OTHER,
    Curve,
    Picture,
    curves_picture,
    number_text,
    spread,
    tick_texts,
    time_unit,
)
from spotkeep_cli.sweeps.sweep_plots import BEST, USUAL
from spotkeep_pages.plots import SERIES


def picture(*curves: Curve, name: str = "loss") -> Picture:
    made = curves_picture(curves, name=name, title="Loss", description="It falls.", x_label="step", y_label="loss")
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (0.001, "0.001"), (1e-9, "1e-9"), (1.5e-10, "1.5e-10"), (2_700, "2,700"), (3e7, "3e7"),
        (-0.25, "-0.25"), (0.1 + 0.2, "0.3"), (123_456, "123,500"),
    ],
)  # fmt: skip
def test_a_number_is_written_as_people_write_it(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.0, 0.5, 1.0], ["0", "0.5", "1"]),
        ([1.000001, 1.000002], ["1.000001", "1.000002"]),
        ([1e-9, 1.25e-9, 1.5e-9], ["1e-9", "1.25e-9", "1.5e-9"]),
        ([2_000, 4_000], ["2,000", "4,000"]),
        ([0.5], ["0.5"]),
    ],
)
def test_ticks_have_as_many_digits_as_they_need(values: list[float], texts: list[str]) -> None:
    assert tick_texts(values) == texts


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.0, 3e-5, 6e-5, 9e-5, 1.2e-4], ["0", "0.00003", "0.00006", "0.00009", "0.00012"]),
        ([0.0, 5e5, 1e6], ["0", "5e5", "1e6"]),
        ([1e-6, 1e-5, 1e-4, 1e-3], ["1e-6", "1e-5", "1e-4", "1e-3"]),
        ([1e-4, 1e-2, 1.0], ["0.0001", "0.01", "1"]),
    ],
)
def test_the_ticks_of_an_axis_have_one_form(values: list[float], texts: list[str]) -> None:
    assert tick_texts(values) == texts


@given(st.lists(st.floats(min_value=-1e12, max_value=1e12), min_size=2, max_size=8, unique=True).map(sorted))
def test_different_ticks_never_have_the_same_text_where_twelve_digits_tell_them_apart(values: list[float]) -> None:
    step = min(after - before for before, after in pairwise(values))
    if step > 1e-9 * max(abs(value) for value in values) and step > 1e-10:
        texts = tick_texts(values)
        assert len(set(texts)) == len(values)


@pytest.mark.parametrize(("seconds", "unit"), [(0, "s"), (90, "s"), (600, "min"), (10_000, "h"), (5 * 86_400, "days")])
def test_a_time_has_a_unit_that_fits(seconds: float, unit: str) -> None:
    assert time_unit(seconds)[1] == unit


@given(st.lists(st.floats(min_value=-1e4, max_value=1e4), max_size=30).map(sorted))
def test_labels_keep_their_order_and_their_distance(places: list[float]) -> None:
    moved = spread(places, gap=13)
    assert len(moved) == len(places)
    assert all(after - before >= 13 - 1e-6 for before, after in pairwise(moved))


def test_labels_that_have_room_stay_where_they_are() -> None:
    assert spread([0, 20, 60], gap=13) == [0, 20, 60]
    assert spread([10, 10], gap=10) == [5, 15]


@given(st.lists(st.floats(min_value=-50, max_value=350), max_size=20).map(sorted))
def test_labels_that_fit_stay_in_the_picture(places: list[float]) -> None:
    moved = spread(places, gap=13, room=260)
    assert all(after - before >= 13 - 1e-6 for before, after in pairwise(moved))
    assert all(-1e-6 <= place <= 260 + 1e-6 for place in moved)


def test_a_curve_without_finite_points_is_no_picture() -> None:
    nothing = Curve(name="a", points=[(1, math.nan), (2, math.inf)])
    assert curves_picture([nothing], name="a", title="A", description="", x_label="x", y_label="y") is None


def test_a_picture_has_its_title_its_words_and_the_names_of_its_parts() -> None:
    made = picture(
        Curve(name="trial 1", points=[(1, 1.0), (2, 0.5)], says="trial 1: lr=<0.1>"),
        Curve(name="trial 2", points=[(1, 0.9), (2, math.nan), (3, 0.4)]),
    )
    figure = made.element()
    (drawn,) = figure.iter("svg")
    assert drawn.get("role") == "img"
    titles = [each.text for each in drawn.iter("title")]
    assert titles == ["Loss", "trial 1: lr=<0.1>", "trial 2"]
    assert [each.text for each in drawn.iter("desc")] == ["It falls."]
    texts = ["".join(each.itertext()) for each in drawn.iter("text")]
    assert {"trial 1", "trial 2", "step", "loss"} <= set(texts)
    assert figure[0].text == "Loss"


def test_a_name_is_no_formula_and_no_control_sequence() -> None:
    made = picture(Curve(name="$x^2$\x1b[31m", points=[(1, 1)]), Curve(name="b", points=[(1, 2)]))
    texts = ["".join(each.itertext()) for each in made.element().iter("text")]
    assert "$x^2$\\x1b[31m" in texts


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_a_picture_is_written_by_the_ending_of_its_file(ending: str, tmp_path: Path) -> None:
    path = picture(Curve(name="a", points=[(1, 1), (2, 2)])).save(tmp_path / "new" / f"loss{ending}")
    assert path.read_bytes()[:5] in {b"\x89PNG\r", b"<?xml", b"%PDF-"}


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandLineError, match="cannot be written"):
        picture(Curve(name="a", points=[(1, 1)])).save(tmp_path / "file" / "loss.png")


@pytest.mark.parametrize("values", [[1e-9, 1e-9], [0.0, 0.0], [1e-9, 2e-9], [-5, 1e6], [1e-12, 1e3], [7.0]])
def test_any_values_have_an_axis_that_shows_them(values: list[float]) -> None:
    made = picture(Curve(name="a", points=list(enumerate(values, start=1))))
    (axes,) = made.figure.axes
    low, high = axes.get_ylim()
    assert low < min(values) <= max(values) < high
    made.element()
    texts = [label.get_text() for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert len(texts) >= 2
    assert len(set(texts)) == len(texts)


def test_values_over_several_powers_of_ten_have_a_logarithmic_axis() -> None:
    wide = picture(Curve(name="a", points=[(1, 10.0), (2, 0.01)])).figure.axes[0]
    near = picture(Curve(name="a", points=[(1, 10.0), (2, 5.0)])).figure.axes[0]
    assert (wide.get_yscale(), near.get_yscale()) == ("log", "linear")


# Linear RGB as people see it who lack one kind of cone (Machado et al. 2009, severity 1).
SIGHT = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


def palettes() -> dict[str, dict[str, str]]:
    """The colours of light and of dark pages, by their names in the style sheet."""
    sheet = (Path(spotkeep_pages.__file__).parent / "page.css").read_text()
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part)) for part in sheet.split("@media")[:2])
    return {"light": light, "dark": dark}


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2."""
    low, high = sorted(float(linear(each) @ [0.2126, 0.7152, 0.0722]) for each in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear RGB. Two colours at a distance of 20 differ in thin lines."""
    to_xyz = np.array([(0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505)])
    scaled = to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("side", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_the_best_curve_is_told_from_the_others_by_readers_of_any_sight(side: str, sight: str) -> None:
    colours = palettes()[side]
    best, usual, other = (f"series-{SERIES.index(each) + 1}" for each in (BEST, USUAL, OTHER))
    seen = {name: lab(np.array(SIGHT[sight]) @ linear(colours[name])) for name in (best, usual, other)}
    for one, another in ((best, usual), (best, other)):
        assert float(np.linalg.norm(seen[one] - seen[another])) > 20, (one, another)


@pytest.mark.parametrize("side", ["light", "dark"])
def test_names_beside_curves_have_the_contrast_of_text(side: str) -> None:
    colours = palettes()[side]
    ratios = {name: contrast(colour, colours["ground"]) for name, colour in colours.items() if "series" in name}
    assert len(ratios) == len(SERIES)
    assert all(ratio >= 4.5 for ratio in ratios.values()), ratios
