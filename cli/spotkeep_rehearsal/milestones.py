"""The milestones of a command in its output. Pure.

A training prints lines such as `epoch 3: loss 0.41`. The numbers of some columns count (the 3), and others measure (the
0.41). The lines of two runs that were left alone tell them apart. A column that counts is the same in both runs, and
grows by equal amounts. A line with such a column is a milestone. The first milestone after a loss shows whether a
command goes on or begins anew.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from spotkeep_rehearsal.evidence import OutputLine

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NUMBER = re.compile(r"(?:(?<![\w.)])-)?(?<![\d.])(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|\bnan\b|\binf\b)", re.IGNORECASE)
_BAR = re.compile(r"[|\u2580-\u259f=#>━╸╺·.\- ]{6,}")
_BLANKS = re.compile(r"\s+")
_PADDING = re.compile(r"(?<=[(\[=]) | (?=[)\]])")
"""A blank that goes where a number grows a digit."""
_PLACE = "\0"
"""Stands for a number until bars are gone, since a bar may be of `#`."""
_TIME_BEHIND = re.compile(
    r"\s?(?:ms|s|sec|secs|seconds|min|mins|minutes|h|it/s|s/it|ms/step|us/step|MB|GB|MiB|GiB)\b|:\d|%?\|"
)
_TIME_BEFORE = re.compile(
    r"\d:$|(?:time|elapsed|eta|took|duration|speed|per.second|/s|throughput|mem\w*|runtime|pid|port|seconds)\W{0,5}$",
    re.IGNORECASE,
)
_COUNTER_BEFORE = re.compile(
    r"(?:\b|_)(?:epochs?|steps?|iter\w*|rounds?|batch\w*|updates?|generation|episode|trees?|fold|stage|examples)"
    r"\W{0,4}$",
    re.IGNORECASE,
)
_PATH_BEFORE = re.compile(r"[A-Za-z_.-]/[\w.-]*$")
_POWER = 4.0
_TIMES_THE_NOISE = 3.0
_NEAR, _FAR = 0.15, 0.5
"""Shares of what a training has learned. A run that begins anew is all of it away."""
_FEWEST_OF_FLOATS = 4
_FEWEST_OF_INTEGERS = 3
_FEWEST_OF_A_REPLAY = 3
_SHORTEST_OF_A_REPLAY_SECONDS = 1.0
_SHARE_OF_A_REPLAY = 0.1
_FEWEST_STEPS_OF_FLOATS = 3
"""An accuracy grows once, from 0.9 to 1."""


@dataclass(frozen=True)
class ReadLine:
    """A line of output, taken apart.

    Attributes:
        shape: Its text with `#` for each number.
        numbers: Its numbers. None for one that is a time or a speed.
        decimals: The digits behind the point of each.
        counts: True for each number behind a word such as `epoch`.
        in_paths: True for each number of a path, such as that of a process.
    """

    shape: str
    numbers: tuple[float | None, ...]
    decimals: tuple[int, ...]
    counts: tuple[bool, ...]
    in_paths: tuple[bool, ...] = ()


def read_line(text: str) -> ReadLine:
    """Take a line of output apart."""
    text = _ESCAPES.sub("", text).replace(_PLACE, " ").strip()
    numbers: list[float | None] = []
    decimals, counts, in_paths, shape, end = [], [], [], [], 0
    for found in _NUMBER.finditer(text):
        before, behind = text[max(0, found.start() - 24) : found.start()], text[found.end() : found.end() + 12]
        is_time = bool(_TIME_BEHIND.match(behind) or _TIME_BEFORE.search(before))
        number = float(found[0])
        numbers.append(None if is_time else number)
        mantissa = found[0].lower().partition("e")[0]
        decimals.append(len(mantissa.partition(".")[2]))
        counts.append(_COUNTER_BEFORE.search(before) is not None)
        in_paths.append(_PATH_BEFORE.search(before) is not None)
        shape += [text[end : found.start()], _PLACE]
        end = found.end()
    shape.append(text[end:])
    without_bars = _BAR.sub(" ", "".join(shape)).replace("#", " ")
    return ReadLine(
        shape=_PADDING.sub("", _BLANKS.sub(" ", without_bars)).strip().replace(_PLACE, "#"),
        numbers=tuple(numbers),
        decimals=tuple(decimals),
        counts=tuple(counts),
        in_paths=tuple(in_paths),
    )


Key = tuple[str, tuple[Optional[float], ...]]


@dataclass(frozen=True)
class Milestones:
    """The milestones of a command.

    Attributes:
        keys: The milestones, in the order of a run that is left alone.
        counters: The columns that count, by the shape of the line.
        times: The time of each milestone in the run left alone, in seconds since its start.
        clocks: The columns that grow as time does, by the shape of the line.
    """

    keys: tuple[Key, ...] = ()
    counters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    times: tuple[float, ...] = ()
    clocks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def key_of(self, text: str) -> Key | None:
        """Return the key of a line, None where it counts nothing."""
        line = read_line(text)
        columns = self.counters.get(line.shape)
        return None if columns is None else (line.shape, tuple(line.numbers[column] for column in columns))

    @property
    def positions(self) -> dict[Key, int]:
        """The position of each milestone."""
        return {key: position for position, key in enumerate(self.keys)}

    def positions_in(self, lines: Iterable[OutputLine]) -> list[int]:
        """Return the positions of the milestones that a life showed, in its order."""
        known = self.positions
        return [known[key] for line in lines if (key := self.key_of(line.text)) in known]

    def without_replay(self, lines: Sequence[OutputLine]) -> Sequence[OutputLine]:
        """Return the output of a life without a history of the lives before that it prints at once, as Chainer does."""
        known, end = self.positions, 0
        shown = [(number, known[key]) for number, line in enumerate(lines) if (key := self.key_of(line.text)) in known]
        for number, position in shown[_FEWEST_OF_A_REPLAY - 1 :]:
            usual = self.times[position] - self.times[shown[0][1]]
            took = lines[number].seconds - lines[shown[0][0]].seconds
            if usual >= _SHORTEST_OF_A_REPLAY_SECONDS and took <= _SHARE_OF_A_REPLAY * usual:
                end = number + 1
        return lines[end:]


def find_milestones(lines: Sequence[OutputLine], others: Sequence[OutputLine] | None = None) -> Milestones:
    """Find the milestones in the output of a run that was left alone.

    Args:
        lines: Its output.
        others: The output of another run that was left alone. None where there is none yet.
    """
    rows, rows_of_others = _by_shape(lines), None if others is None else _by_shape(others)
    counters: dict[str, tuple[int, ...]] = {}
    for shape, group in rows.items():
        compared = None if rows_of_others is None else rows_of_others.get(shape, [])
        if len(group) >= 2 and (compared is None or len(compared) >= 2):
            columns = tuple(number for number in range(len(group[0].numbers)) if _counts(group, compared, number))
            if columns:
                counters[shape] = columns
    found = Milestones(counters=counters)
    times: dict[Key, float] = {}
    for line in lines:
        key = found.key_of(line.text)
        if key is not None:
            times.setdefault(key, line.seconds)
    if others is not None:
        also = {found.key_of(line.text) for line in others}
        times = {key: time for key, time in times.items() if key in also}
    clocks = {} if others is None else _clocks(lines, others)
    return Milestones(keys=tuple(times), counters=counters, times=tuple(times.values()), clocks=clocks)


def _clocks(lines: Sequence[OutputLine], others: Sequence[OutputLine]) -> dict[str, tuple[int, ...]]:
    """Find the columns that grow as time does, in both runs."""
    found: dict[str, set[int]] = {}
    for number, output in enumerate((lines, others)):
        rows: dict[str, list[tuple[float, ReadLine]]] = {}
        for line in output:
            read = read_line(line.text)
            rows.setdefault(read.shape, []).append((line.seconds, read))
        own = {
            shape: {column for column in range(len(group[0][1].numbers)) if _is_clock(group, column)}
            for shape, group in rows.items()
        }
        found = own if not number else {shape: columns & own.get(shape, set()) for shape, columns in found.items()}
    return {shape: tuple(sorted(columns)) for shape, columns in found.items() if columns}


def _is_clock(group: Sequence[tuple[float, ReadLine]], column: int) -> bool:
    values = [value for _, line in group if (value := line.numbers[column]) is not None]
    if len(values) < max(len(group), _FEWEST_OF_FLOATS) or not group[0][1].decimals[column]:
        return False
    steps = [
        (after - before, later[0] - earlier[0])
        for before, after, earlier, later in zip(values, values[1:], group, group[1:])
    ]
    return (
        all(abs(grown - passed) <= 0.1 + 0.1 * passed for grown, passed in steps)
        and sum(passed for _, passed in steps) >= _SHORTEST_OF_A_REPLAY_SECONDS
    )


def _by_shape(lines: Sequence[OutputLine]) -> dict[str, list[ReadLine]]:
    rows: dict[str, list[ReadLine]] = {}
    for line in lines:
        read = read_line(line.text)
        if read.numbers:
            rows.setdefault(read.shape, []).append(read)
    return rows


def _counts(group: Sequence[ReadLine], others: Sequence[ReadLine] | None, column: int) -> bool:
    """Return True if a column counts."""
    values = [line.numbers[column] for line in group]
    if others is not None and any(one.numbers[column] != other.numbers[column] for one, other in zip(group, others)):
        return False
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values) or not all(map(math.isfinite, numbers)):
        return False
    steps = [after - before for before, after in zip(numbers, numbers[1:]) if after != before and after != numbers[0]]
    grows = [step for step in steps if step > 0]
    if not grows or len(grows) < len(steps):
        return False
    if group[0].counts[column]:
        return True
    rounding = 1.01 * 10.0 ** -max(line.decimals[column] for line in group)
    is_whole = all(value.is_integer() for value in numbers) and not any(line.decimals[column] for line in group)
    fewest = _FEWEST_OF_INTEGERS if is_whole else _FEWEST_OF_FLOATS
    if not is_whole and len(grows) < _FEWEST_STEPS_OF_FLOATS:
        return False
    even = max(grows) - min(grows) <= (0 if is_whole else rounding)
    return even and (len(numbers) >= fewest or (is_whole and grows[0] == 1))


def metrics_of(lines: Iterable[OutputLine], milestones: Milestones) -> dict[Key, tuple[float, ...]]:
    """Return the numbers that a command measured, by milestone, or by the shape of a line that has no counter.

    The last line of a kind counts. Times and speeds are left out.
    """
    found: dict[Key, tuple[float, ...]] = {}
    for line in lines:
        read = read_line(line.text)
        columns = milestones.counters.get(read.shape, ())
        left_out = (*columns, *milestones.clocks.get(read.shape, ()))
        key = (read.shape, tuple(read.numbers[column] for column in columns))
        measured = tuple(
            number
            for column, number in enumerate(read.numbers)
            if column not in left_out and number is not None and not read.in_paths[column]
        )
        if measured:
            found[key] = measured
    return found


@dataclass(frozen=True)
class MetricComparison:
    """The metrics of the interrupted run beside those of the runs left alone.

    Attributes:
        compared: Number of lines that all three runs have, and that the last life printed.
        repeatable: True if both runs left alone agree in them.
        equal: True if the interrupted run agrees with one of them.
        first_difference: A line that differs, in words. Empty without one.
        tells: True if a training that begins anew would show in a column of them, beside the noise of the runs left
            alone.
        near: True if the interrupted run is as near to the runs left alone as they are to each other, in all of these.
        far: True if it is as far from them as a training that begins anew, in one of these.
    """

    compared: int
    repeatable: bool
    equal: bool
    first_difference: str = ""
    tells: bool = False
    near: bool = False
    far: bool = False


def compare_metrics(
    run: Sequence[OutputLine], alone: Sequence[OutputLine], again: Sequence[OutputLine], milestones: Milestones
) -> MetricComparison:
    """Compare what the last life of the interrupted run measured with the runs left alone.

    Args:
        run: The output of the last life.
        alone: The output of a run left alone.
        again: The output of the other one.
        milestones: The milestones of the command.
    """
    ours, one, other = (metrics_of(lines, milestones) for lines in (run, alone, again))
    common = [key for key in one if key in ours and key in other and len(ours[key]) == len(one[key]) == len(other[key])]
    # What a command prints before it trains is the same at every start, and measures nothing.
    begins = milestones.times[0] if milestones.times else (alone[-1].seconds / 2 if alone else 0.0)
    before = {read_line(line.text).shape for line in alone if line.seconds < begins}
    common = [key for key in common if key[0] in milestones.counters or key[0] not in before]
    repeatable = all(_same(one[key], other[key]) for key in common)
    unequal = [key for key in common if not _same(ours[key], one[key]) and not _same(ours[key], other[key])]
    difference = ""
    if unequal:
        shown = ", ".join(f"{a:g} and not {b:g}" for a, b in zip(ours[unequal[0]], one[unequal[0]]) if a != b)
        difference = f"{_filled(unequal[0])!r}: {shown}"
    columns = [
        column
        for shape in milestones.counters
        for column in _columns([key for key in common if key[0] == shape], ours, one, other)
    ]
    telling = [column for column in columns if column.learned > _POWER * column.noise]
    return MetricComparison(
        compared=len(common),
        repeatable=repeatable,
        equal=not unequal,
        first_difference=difference,
        tells=bool(telling),
        near=all(each.distance <= max(_TIMES_THE_NOISE * each.noise, _NEAR * each.learned) for each in telling),
        far=any(each.distance > _FAR * each.learned for each in telling),
    )


@dataclass(frozen=True)
class _Column:
    """A measured number of a kind of line.

    Attributes:
        noise: The largest distance between the runs left alone.
        distance: The largest distance of the interrupted run from the nearer one of them.
        learned: The mean distance from the first line of the kind.
    """

    noise: float
    distance: float
    learned: float


def _columns(
    keys: Sequence[Key],
    ours: Mapping[Key, tuple[float, ...]],
    one: Mapping[Key, tuple[float, ...]],
    other: Mapping[Key, tuple[float, ...]],
) -> Iterable[_Column]:
    if not keys:
        return
    first = next(one[key] for key in one if key[0] == keys[0][0])
    for column in range(len(first)):
        numbers = [(ours[key][column], one[key][column], other[key][column]) for key in keys]
        if all(math.isfinite(number) for row in numbers for number in row) and math.isfinite(first[column]):
            yield _Column(
                noise=max(abs(b - c) for _, b, c in numbers),
                distance=max(min(abs(a - b), abs(a - c)) for a, b, c in numbers),
                learned=sum(abs(first[column] - b) for _, b, _ in numbers) / len(numbers),
            )


def _same(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(one, other))


def _filled(key: Key) -> str:
    text = key[0]
    for number in key[1]:
        text = text.replace("#", f"{number:g}", 1)
    return text if len(text) <= 80 else f"{text[:77]}..."
