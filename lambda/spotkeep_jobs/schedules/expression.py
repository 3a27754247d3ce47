"""The firing times of a schedule, from the cron and rate expressions of EventBridge Scheduler. Pure.

Source: https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html
"""

from __future__ import annotations

import calendar
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic_core import PydanticCustomError

from spotkeep_jobs.document.reading import wrong

FORMS: Final = "Write cron(minute hour day-of-month month day-of-week year), as in cron(0 2 * * ? *), or rate(12 hours)"
_RATE: Final = re.compile(r"(\d{1,6}) (minute|hour|day)(s?)")
_SECONDS: Final = {"minute": 60, "hour": 3_600, "day": 86_400}
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LAST_YEAR: Final = 2199
_SATURDAY: Final = 7
_MINUTES: Final = 60
_COUNTED_AS_AWS_DOES: Final = frozenset({"2-6", "1,7", "7,1", "1-7"})
"""Working days, weekends and all days, in AWS's numbers. A user of crontab's numbers would hardly write these."""
_NO_ZONES: Final = frozenset({"Factory", "localtime", "posixrules"})
"""Names that stand beside the time zones in the database or on the machine.

The last two are another zone on each machine.
"""

DayRule: TypeAlias = Callable[[date], bool]
"""Returns True if a schedule fires on a day."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A schedule that fires after so many seconds, and again and again.

    Attributes:
        seconds: The distance of two firings.
    """

    seconds: int

    def next_after(self, at: datetime, *, begins_at: datetime) -> datetime:
        """Return the first firing after a time. A day of a rate has 24 hours.

        Args:
            at: The time, aware.
            begins_at: The first firing of all.
        """
        if at < begins_at:
            return begins_at
        passed = (at - begins_at) // timedelta(seconds=self.seconds)
        return begins_at + (passed + 1) * timedelta(seconds=self.seconds)


@dataclass(frozen=True, kw_only=True)
class Cron:
    """A schedule that fires at minutes of days.

    Attributes:
        minutes: Those of the hours.
        hours: Those of the days.
        months: From 1.
        years: The years, with four digits.
        fires_on: Days of these.
    """

    minutes: Sequence[int]
    hours: Sequence[int]
    months: Sequence[int]
    years: Sequence[int]
    fires_on: DayRule

    def next_after(self, at: datetime, *, zone: ZoneInfo, begins_at: datetime) -> datetime | None:
        """Return the first firing after a time, in UTC. None when there is none any more.

        A time that the zone skips in spring does not fire. One that comes twice in autumn fires the first time.

        Args:
            at: The time, aware.
            zone: The zone of the expression's clock.
            begins_at: Nothing fires before it.
        """
        at = max(at, begins_at - timedelta(seconds=1))
        today = at.astimezone(zone).date()
        for year, month in product((each for each in self.years if each >= today.year), self.months):
            for number in range(1, calendar.monthrange(year, month)[1] + 1):
                day = date(year, month, number)
                if day < today or not self.fires_on(day):
                    continue
                for hour, minute in product(self.hours, self.minutes):
                    local = datetime.combine(day, time(hour, minute), tzinfo=zone)
                    firing = local.astimezone(UTC)
                    if firing > at and firing.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
                        return firing
        return None


def next_after(expression: str, timezone: str, *, at: datetime, begins_at: datetime) -> datetime | None:
    """Return the first firing after a time, in UTC. None if there is none, or if the time zone is not known here.

    Args:
        expression: One that was read before.
        timezone: The zone of a cron expression's clock.
        at: The time, aware.
        begins_at: Nothing fires before it. A rate fires then for the first time.
    """
    read, zone = read_expression(expression), zone_of(timezone)
    if isinstance(read, Rate):
        return read.next_after(at, begins_at=begins_at)
    return None if zone is None else read.next_after(at, zone=zone, begins_at=begins_at)


def read_expression(value: object) -> Rate | Cron:
    """Return the meaning of an expression.

    Args:
        value: The value in the document, of any type.

    Raises:
        PydanticCustomError: It is no such expression. The message names the problem and the correction.
    """
    if not isinstance(value, str):
        raise wrong("is not text", FORMS)
    found = re.fullmatch(r"(cron|rate)\((.*)\)", value)
    if found is None:
        if (likely := _of_crontab(value)) is not None:
            raise wrong("is a line of crontab", f"AWS writes it as {likely}")
        one_time = " A run at one time is launched then" if value.startswith("at(") else ""
        raise wrong("is neither cron(...) nor rate(...)", f"{FORMS}.{one_time}".rstrip("."))
    return _rate(found[2]) if found[1] == "rate" else _cron(found[2])


def expression_warnings(expression: str) -> Iterator[str]:
    """Yield a warning for each part of an expression that probably means something else than its writer thinks.

    Args:
        expression: One that was read before.
    """
    read = read_expression(expression)
    if isinstance(read, Rate):
        if read.seconds == _SECONDS["minute"]:
            yield f"schedule {expression} launches every minute."
        return
    if len(read.minutes) == _MINUTES:
        yield (
            f"schedule {expression} launches every minute of its hours. For once an hour, write 0 for the minute: "
            f"{expression.replace('(*', '(0', 1)}."
        )
    weekday = expression.split()[4]
    named = re.sub(r"(?<![#/])[1-7]", lambda number: _WEEKDAYS[int(number[0]) - 1], weekday)
    if named != weekday and weekday not in _COUNTED_AS_AWS_DOES:
        yield (
            f"schedule {expression} fires on {named}: AWS counts the days of the week from SUN, which is 1, and "
            "crontab from MON. Write the names that you mean."
        )


def read_zone(value: object) -> str:
    """Return the name of a time zone. Without a list of zones, as in some images, AWS judges the name.

    Raises:
        PydanticCustomError: There is no such zone.
    """
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_+/-]{1,50}", value):
        raise wrong("is not the name of a time zone", "Write one such as Europe/Berlin or UTC")
    zones = _known_zones()
    if zones and value not in zones:
        raise wrong("is no time zone that is known", "Write one such as Europe/Berlin, America/New_York or UTC")
    return value


@functools.cache
def _known_zones() -> frozenset[str]:
    """Return the time zones of the IANA database, if the machine has one. Its other files are left out."""
    zones = frozenset(available_timezones()) - _NO_ZONES
    return zones if "Europe/Berlin" in zones else frozenset()


def zone_of(name: str) -> ZoneInfo | None:
    """Return a time zone. None if it is not known here."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _rate(text: str) -> Rate:
    found = _RATE.fullmatch(text)
    count = 0 if found is None else int(found[1])
    if found is None or count < 1:
        raise wrong("is no rate", "Write a whole number from 1 and minutes, hours or days: rate(12 hours)")
    if (count == 1) is bool(found[3]):
        right = found[2] if count == 1 else f"{found[2]}s"
        raise wrong("has a unit that AWS refuses with this number", f"Write rate({count} {right})")
    return Rate(seconds=count * _SECONDS[found[2]])


def _cron(text: str) -> Cron:
    fields = text.split()
    if len(fields) != 6:
        problem = f"has {len(fields)} fields; there are six: minute hour day-of-month month day-of-week year"
        if (likely := _of_crontab(text)) is not None:
            raise wrong(problem, f"AWS writes this line of crontab as {likely}")
        fix = "Five fields, as crontab has them, get a year and a ?: cron(0 2 * * ? *) is every night at two"
        raise wrong(problem, fix)
    minute, hour, day, month, weekday, year = fields
    if (day == "?") is (weekday == "?"):
        problem = "says ? for both the day of the month and the day of the week" if day == "?" else (
            "names days of the month and days of the week; one of them says ?"
        )  # fmt: skip
        raise wrong(problem, "Write ? for the one that does not matter: cron(0 2 * * ? *), cron(0 2 ? * MON-FRI *)")
    return Cron(
        minutes=_numbers(minute, what="the minute", low=0, high=59),
        hours=_numbers(hour, what="the hour", low=0, high=23),
        months=_numbers(month, what="the month", low=1, high=12, names=_MONTHS),
        years=_numbers(year, what="the year", low=1970, high=_LAST_YEAR),
        fires_on=_days_of_month(day) if weekday == "?" else _days_of_week(weekday),
    )


_NICKNAMES: Final[Mapping[str, str]] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def _of_crontab(text: str) -> str | None:
    """Return AWS's expression for a line of crontab. None where the text is no such line, or AWS cannot say it.

    A line of crontab with days of the month and days of the week fires on both.
    """
    fields = _NICKNAMES.get(text.strip().lower(), text).split()
    if len(fields) != 5 or (fields[2] != "*" and fields[4] != "*"):
        return None
    minute, hour, day, month, weekday = fields
    try:
        named = "?" if weekday == "*" else ",".join(map(_WEEKDAYS.__getitem__, _crontab_weekdays(weekday)))
        day = day if named == "?" else "?"
        expression = f"cron({minute} {hour} {day} {month} {named} *)"
        read_expression(expression)
    except (PydanticCustomError, ValueError, IndexError):
        return None
    return expression.replace("MON,TUE,WED,THU,FRI ", "MON-FRI ")


def _crontab_weekdays(field: str) -> list[int]:
    """Return the days of the week of a line of crontab, from 0 for Sunday to 6."""
    found: list[int] = []
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        begin, end = (0, 6) if first == "*" else (_weekday_number(first), _weekday_number(last if dash else first))
        found += [number % 7 for number in range(begin, end + 1, int(step or 1))]
    return list(dict.fromkeys(found))


def _weekday_number(text: str) -> int:
    if text.upper() in _WEEKDAYS:
        return _WEEKDAYS.index(text.upper())
    if not re.fullmatch("[0-7]", text):
        raise ValueError(text)
    return int(text)


def _numbers(field: str, *, what: str, low: int, high: int, names: Sequence[str] = ()) -> tuple[int, ...]:
    """Return the numbers that a field lists, in order."""
    known: Mapping[str, int] = {name: number for number, name in enumerate(names, start=low)}
    found: set[int] = set()

    def number(text: str) -> int:
        value = known.get(text.upper(), int(text) if re.fullmatch(r"\d{1,4}", text) else None)
        if value is None or not low <= value <= high:
            named = f" ({names[0]} is {low}), or {names[0]} to {names[-1]}" if names else ""
            raise wrong(f"has {field!r} for {what}", f"Use {low} to {high}{named}, with * , - and / as AWS reads them")
        return value

    for part in field.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        begin = low if first == "*" else number(first)
        end = number(last) if dash else (high if first == "*" or slash else begin)
        if end < begin:
            raise wrong(f"has a range for {what} that goes down: {span}", "List the values with commas")
        found.update(range(begin, end + 1, max(1, _step(step, what=what)) if slash else 1))
    return tuple(sorted(found))


def _step(text: str, *, what: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,3}", text):
        raise wrong(f"has a step of {text!r} for {what}", "Write a number from 1 behind the slash: 0/15")
    return int(text)


def _days_of_month(field: str) -> DayRule:
    if field == "L":
        return lambda day: day.day == calendar.monthrange(day.year, day.month)[1]
    near = re.fullmatch(r"(\d{1,2})W", field)
    if near is not None and 1 <= int(near[1]) <= 31:
        nearest_to = int(near[1])
        return lambda day: day.day == _nearest_weekday(day.year, day.month, nearest_to)
    days = _numbers(field, what="the day of the month", low=1, high=31)
    return lambda day: day.day in days


def _days_of_week(field: str) -> DayRule:
    def numbers(text: str) -> tuple[int, ...]:
        return _numbers(text, what="the day of the week", low=1, high=7, names=_WEEKDAYS)

    if field == "L":
        return lambda day: _weekday(day) == _SATURDAY
    if last := re.fullmatch(r"(\w+)L", field, re.ASCII):
        [last_of_month] = numbers(last[1])
        return lambda day: _weekday(day) == last_of_month and (day + timedelta(days=7)).month != day.month
    if nth := re.fullmatch(r"(\w+)#([1-5])", field, re.ASCII):
        [of_month] = numbers(nth[1])
        return lambda day: _weekday(day) == of_month and (day.day + 6) // 7 == int(nth[2])
    days = numbers(field)
    return lambda day: _weekday(day) in days


def _weekday(day: date) -> int:
    """Return AWS's number of a weekday, which is 1 for Sunday."""
    return day.isoweekday() % 7 + 1


def _nearest_weekday(year: int, month: int, number: int) -> int:
    """Return the day from Monday to Friday of a month that is nearest to a day. The month is not left."""
    last = calendar.monthrange(year, month)[1]
    number = min(number, last)
    weekday = date(year, month, number).isoweekday()
    if weekday == 6:
        return number - 1 if number > 1 else 3
    if weekday == 7:
        return number + 1 if number < last else number - 2
    return number
