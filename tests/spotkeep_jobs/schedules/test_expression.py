"""When a schedule fires: AWS's cron and rate expressions, in words where they are wrong."""

from __future__ import annotations

import calendar
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from spotkeep_jobs.schedules.expression import Cron, Rate, expression_warnings, next_after, read_expression, read_zone

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def firings(
    expression: str, count: int, *, after: datetime = NOW, zone: str = "UTC", begins_at: datetime | None = None
) -> list[str]:
    found, at = [], after
    for _ in range(count):
        following = next_after(expression, zone, at=at, begins_at=begins_at or after)
        if following is None:
            break
        at = following
        found.append(f"{at:%Y-%m-%d %H:%M}")
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("cron(0 2 * * ? *)", ["2026-11-26 02:00", "2026-11-27 02:00"]),
        ("cron(0/20 12 * * ? *)", ["2026-11-25 12:20", "2026-11-25 12:40", "2026-11-26 12:00"]),
        ("cron(15,45 9-10 ? * MON-FRI *)", ["2026-11-26 09:15", "2026-11-26 09:45", "2026-11-26 10:15"]),
        ("cron(0 0 1 JAN,JUL ? *)", ["2027-01-01 00:00", "2027-07-01 00:00"]),
        ("cron(0 0 L * ? *)", ["2026-11-30 00:00", "2026-12-31 00:00", "2027-01-31 00:00", "2027-02-28 00:00"]),
        ("cron(0 0 29 2 ? *)", ["2028-02-29 00:00"]),
        ("cron(0 0 1W * ? *)", ["2026-12-01 00:00", "2027-01-01 00:00", "2027-02-01 00:00"]),
        ("cron(0 0 15W 8 ? *)", ["2027-08-16 00:00"]),  # The 15th is a Sunday.
        ("cron(0 0 1W 5 ? *)", ["2027-05-03 00:00"]),  # A Saturday; April is not entered.
        ("cron(0 0 31W 1 ? *)", ["2027-01-29 00:00"]),  # A Sunday; February is not entered.
        ("cron(0 0 ? * 6L *)", ["2026-11-27 00:00", "2026-12-25 00:00"]),
        ("cron(0 0 ? * FRIL *)", ["2026-11-27 00:00", "2026-12-25 00:00"]),
        ("cron(0 0 ? * friL *)", ["2026-11-27 00:00", "2026-12-25 00:00"]),
        ("cron(0 0 ? * MON#1 *)", ["2026-12-07 00:00", "2027-01-04 00:00"]),
        ("cron(0 0 ? * L *)", ["2026-11-28 00:00", "2026-12-05 00:00"]),
        ("cron(0 0 ? * 2#1 *)", ["2026-12-07 00:00", "2027-01-04 00:00"]),
        ("cron(0 0 1 1 ? 2030)", ["2030-01-01 00:00"]),
        ("cron(0 0 1 1 ? 2020)", []),
        ("cron(0 0 30 2 ? *)", []),
    ],
)
def test_it_fires_when_aws_says(expression: str, expected: list[str]) -> None:
    assert firings(expression, max(1, len(expected)) + (len(expected) == 1))[: len(expected)] == expected
    if not expected:
        assert firings(expression, 1) == []


def test_it_fires_by_the_clock_of_its_zone_whatever_the_season() -> None:
    assert firings("cron(30 2 * * ? *)", 1, zone=BERLIN) == ["2026-11-26 01:30"]
    summer = datetime(2026, 7, 1, tzinfo=UTC)
    assert firings("cron(30 2 * * ? *)", 1, zone=BERLIN, after=summer) == ["2026-07-01 00:30"]


def test_a_time_that_spring_skips_does_not_fire_and_one_that_autumn_repeats_fires_once() -> None:
    spring = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)
    assert firings("cron(30 2 * * ? *)", 1, zone=BERLIN, after=spring) == ["2026-03-30 00:30"]
    autumn = datetime(2026, 10, 24, 12, 0, tzinfo=UTC)
    assert firings("cron(30 2 * * ? *)", 2, zone=BERLIN, after=autumn) == ["2026-10-25 00:30", "2026-10-26 01:30"]


def test_a_rate_fires_at_its_beginning_and_after_each_interval() -> None:
    begins = NOW + timedelta(hours=1)
    assert firings("rate(12 hours)", 2, begins_at=begins) == ["2026-11-25 13:00", "2026-11-26 01:00"]
    assert firings("rate(1 day)", 1, after=begins, begins_at=begins) == ["2026-11-26 13:00"]


@given(minutes=st.integers(1, 5_000), passed=st.integers(0, 10**7))
def test_the_next_firing_of_a_rate_is_the_nearest_one_to_come(minutes: int, passed: int) -> None:
    rate = Rate(seconds=60 * minutes)
    at = NOW + timedelta(seconds=passed)
    following = rate.next_after(at, begins_at=NOW)
    assert at < following <= at + timedelta(minutes=minutes)
    assert (following - NOW) % timedelta(minutes=minutes) == timedelta(0)


@given(
    minute=st.integers(0, 59), hour=st.integers(0, 23), day=st.integers(1, 28), month=st.integers(1, 12),
    after=st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001
)  # fmt: skip
def test_a_yearly_cron_fires_once_a_year(minute: int, hour: int, day: int, month: int, after: datetime) -> None:
    at = after.replace(tzinfo=UTC)
    following = next_after(f"cron({minute} {hour} {day} {month} ? *)", "UTC", at=at, begins_at=at)
    assert following is not None
    assert at < following
    assert following - at <= timedelta(days=366 if calendar.isleap(following.year) or calendar.isleap(at.year) else 365)
    assert (following.minute, following.hour, following.day, following.month) == (minute, hour, day, month)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (5, "is not text"),
        ("0 2 * * *", "is a line of crontab"),
        ("at(2026-12-01T08:00:00)", "neither cron"),
        ("cron(0 2 * * *)", "has 5 fields"),
        ("cron(0 2 * * * *)", "one of them says ?"),
        ("cron(0 2 ? * ? *)", "says ? for both"),
        ("cron(60 2 * * ? *)", "for the minute"),
        ("cron(0 24 * * ? *)", "for the hour"),
        ("cron(0 2 32 * ? *)", "for the day of the month"),
        ("cron(0 2 * XYZ ? *)", "for the month"),
        ("cron(0 2 ? * 8 *)", "for the day of the week"),
        ("cron(0 2 ? * 0-5 *)", r"has '0-5' for the day of the week"),
        ("cron(0 2 ? * MON#6 *)", "for the day of the week"),
        ("cron(0 2 ? * XYZL *)", "for the day of the week"),
        ("cron(0 2 ? * MON,TUEL *)", "for the day of the week"),
        ("cron(0 2 ? * FRI-MON *)", "goes down: FRI-MON"),
        ("cron(0/0 2 * * ? *)", "step of '0'"),
        ("cron(? 2 * * ? *)", "for the minute"),
        ("cron(0 2 * * ? 1969)", "for the year"),
        ("rate(0 hours)", "is no rate"),
        ("rate(90 seconds)", "is no rate"),
        ("rate(1.5 hours)", "is no rate"),
        ("rate(1 hours)", "refuses with this number"),
        ("rate(2 hour)", "refuses with this number"),
    ],
)
def test_what_is_wrong_is_said_in_words(expression: object, words: str) -> None:
    with pytest.raises(PydanticCustomError, match=words.replace("?", r"\?")):
        read_expression(expression)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for expression in (text, f"cron({text})", f"rate({text})"):
        try:
            read = read_expression(expression)
        except PydanticCustomError:
            continue
        assert isinstance(read, Rate | Cron)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("cron(0 2 ? * 1-5 *)", "fires on SUN-THU"),
        ("cron(0 2 ? * 3,5 *)", "fires on TUE,THU"),
        ("cron(0 2 ? * 1-5/2 *)", "fires on SUN-THU/2"),
        ("cron(0 2 ? * 2#1 *)", "fires on MON#1"),
        ("cron(0 2 ? * 6L *)", "fires on FRIL"),
        ("cron(* 2 * * ? *)", r"every minute of its hours.* cron\(0 2 \* \* ? \*\)"),
        ("cron(*/1 2 * * ? *)", "every minute of its hours"),
        ("rate(1 minute)", "launches every minute"),
    ],
)
def test_what_is_probably_not_meant_is_a_warning(expression: str, words: str) -> None:
    [warning] = expression_warnings(expression)
    assert re.search(words.replace("?", r"\?"), warning)


@pytest.mark.parametrize(
    "expression",
    ["cron(0/5 2 ? * MON#1 *)", "cron(0 2 ? * 2-6 *)", "cron(0 2 ? * 1,7 *)", "cron(0 2 1-5 * ? *)", "rate(2 minutes)"],
)
def test_what_aws_and_its_writer_read_alike_is_none(expression: str) -> None:
    assert list(expression_warnings(expression)) == []


def test_every_zone_of_the_iana_database_is_taken() -> None:
    zones = available_timezones() - {"Factory", "localtime", "posixrules"}
    assert [read_zone(zone) for zone in zones] == [*zones]


@pytest.mark.parametrize(
    "zone",
    [
        "posixrules",
        "localtime",
        "Factory",
        "posix/Europe/Berlin",
        "europe/berlin",
        "Europe/Nowhere",
        "../etc/passwd",
        "",
        5,
        "/UTC",
    ],
)
def test_a_zone_that_there_is_not_is_refused(zone: object) -> None:
    with pytest.raises(PydanticCustomError, match="time zone"):
        read_zone(zone)


@pytest.mark.parametrize(
    ("written", "expression"),
    [
        ("0 2 * * *", "cron(0 2 * * ? *)"),
        ("cron(0 2 * * *)", "cron(0 2 * * ? *)"),
        ("*/15 8-18 * * 1-5", "cron(*/15 8-18 ? * MON-FRI *)"),
        ("30 4 * * 0,6", "cron(30 4 ? * SUN,SAT *)"),
        ("0 0 * * 5-7", "cron(0 0 ? * FRI,SAT,SUN *)"),
        ("0 0 * * sun", "cron(0 0 ? * SUN *)"),
        ("0 6 1 * *", "cron(0 6 1 * ? *)"),
        ("@weekly", "cron(0 0 ? * SUN *)"),
    ],
)
def test_a_line_of_crontab_is_answered_with_awss_expression(written: str, expression: str) -> None:
    with pytest.raises(PydanticCustomError) as refused:
        read_expression(written)
    assert refused.value.context is not None
    assert expression in refused.value.context["fix"]
    read_expression(expression)


@pytest.mark.parametrize("written", ["0 0 1 * 1", "61 0 * * *", "0 0 * * 9", "0 0 * * x", "hello", "0 0 * * 1/0"])
def test_a_line_that_aws_cannot_say_gets_the_forms(written: str) -> None:
    with pytest.raises(PydanticCustomError) as refused:
        read_expression(written)
    assert refused.value.context is not None
    assert "Write cron(minute hour" in refused.value.context["fix"]
