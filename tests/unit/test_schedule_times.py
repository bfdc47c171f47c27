"""When schedules tick: cron in time zones that jump, intervals, single times, missed ticks."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairturn.core import limits, schedule_times
from fairturn.core.errors import InvalidArgument
from fairturn.core.schedule_times import Cron, Every, Once
from fairturn.core.values import moment

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
ROME, NEW_YORK = "Europe/Rome", "America/New_York"


def us(text: str, zone: str = "UTC", fold: int = 0) -> int:
    """A local time in microseconds."""
    local = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return round(local.astimezone(UTC).timestamp()) * SECOND


def walk(spec: schedule_times.Spec, start: int, end: int) -> list[int]:
    """Every tick after start, up to end."""
    found: list[int] = []
    tick = spec.after(start)
    while tick is not None and tick <= end:
        found.append(tick)
        tick = spec.after(tick)
    return found


def local_day(expression: str, zone: str, day: str) -> list[str]:
    """The ticks of one local day, as local time with its offset."""
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    end = begin + timedelta(days=1)  # of the clock on the wall, however long the day is
    spec = Cron(expression, zone)
    found = walk(spec, us(day, zone) - 1, round(end.timestamp()) * SECOND - 1)
    return [schedule_times.local(spec, tick).strftime("%H:%M%z") for tick in found]


# --- cron ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("* * * * *", "2030-03-17T17:46:40", "2030-03-17T17:47:00"),
        ("0 3 * * *", "2030-03-17T03:00:00", "2030-03-18T03:00:00"),
        ("0 3 * * *", "2030-03-17T02:59:59", "2030-03-17T03:00:00"),
        ("*/15 9-17 * * MON-FRI", "2030-03-15T17:45:00", "2030-03-18T09:00:00"),
        ("0 0 29 2 *", "2030-03-17T00:00:00", "2032-02-29T00:00:00"),
        ("0 12 L * *", "2030-02-01T00:00:00", "2030-02-28T12:00:00"),
        ("0 9 * * MON#1", "2030-03-17T00:00:00", "2030-04-01T09:00:00"),
        ("0 0 13 * FRI", "2030-03-17T00:00:00", "2030-03-22T00:00:00"),  # either of the two days
        ("@yearly", "2030-03-17T00:00:00", "2031-01-01T00:00:00"),
        ("@annually", "2030-03-17T00:00:00", "2031-01-01T00:00:00"),
        ("@monthly", "2030-03-17T00:00:00", "2030-04-01T00:00:00"),
        ("@weekly", "2030-03-17T00:00:00", "2030-03-24T00:00:00"),
        ("@Daily", "2030-03-17T00:00:00", "2030-03-18T00:00:00"),
        ("@midnight", "2030-03-17T00:00:00", "2030-03-18T00:00:00"),
        ("@hourly", "2030-03-17T00:00:00", "2030-03-17T01:00:00"),
    ],
)
def test_the_next_tick(expression: str, after: str, expected: str) -> None:
    assert schedule_times.cron(expression, "UTC").after(us(after)) == us(expected)


def test_between_two_seconds() -> None:
    tick = us("2030-03-17T03:00:00")
    spec = Cron("0 3 * * *")
    assert spec.after(tick - 1) == tick
    assert spec.after(tick) == spec.after(tick + 1) == tick + DAY


@pytest.mark.parametrize(
    ("zone", "day", "gap_end"),
    [(ROME, "2030-03-31", "03:00+0200"), (NEW_YORK, "2030-03-10", "03:00-0400")],
)
def test_the_hour_that_is_left_out(zone: str, day: str, gap_end: str) -> None:
    """A time of the day inside it comes at its end; what follows real time has an hour less."""
    assert local_day("30 2 * * *", zone, day) == [gap_end]
    assert local_day("0 2,3 * * *", zone, day) == [gap_end]  # both are then, which is one tick
    assert local_day("15,45 2 * * *", zone, day) == [gap_end]
    assert local_day("30 3 * * *", zone, day) == [gap_end.replace(":00", ":30", 1)]
    hours = local_day("0 * * * *", zone, day)
    assert len(hours) == 23
    assert not any(hour.startswith("02") for hour in hours)
    assert local_day("*/30 2 * * *", zone, day) == []


@pytest.mark.parametrize(
    ("zone", "day", "first", "second"),
    [(ROME, "2030-10-27", "+0200", "+0100"), (NEW_YORK, "2030-11-03", "-0400", "-0500")],
)
def test_the_hour_that_comes_twice(zone: str, day: str, first: str, second: str) -> None:
    """A time of the day inside it counts once; what follows real time has an hour more."""
    doubled = "02" if zone == ROME else "01"
    assert local_day(f"30 {doubled} * * *", zone, day) == [f"{doubled}:30{first}"]
    hours = local_day("0 * * * *", zone, day)
    assert len(hours) == 25
    assert [h for h in hours if h.startswith(doubled)] == [
        f"{doubled}:00{first}",
        f"{doubled}:00{second}",
    ]
    quarters = local_day(f"*/15 {doubled} * * *", zone, day)
    assert [quarter[-5:] for quarter in quarters] == [first] * 4 + [second] * 4


@pytest.mark.parametrize(("zone", "day"), [(ROME, "2030-10-27"), (NEW_YORK, "2030-11-03")])
def test_who_asks_in_the_doubled_hour_gets_no_tick_that_is_over(zone: str, day: str) -> None:
    doubled = 2 if zone == ROME else 1
    asked = us(f"{day}T0{doubled}:10:00", zone, fold=1)
    tick = Cron(f"30 {doubled} * * *", zone).after(asked)
    assert tick is not None
    assert tick > asked
    assert schedule_times.local(Cron("* * * * *", zone), tick).date() > date.fromisoformat(day)


@pytest.mark.parametrize("zone", [ROME, NEW_YORK, "Australia/Lord_Howe", "Asia/Kolkata"])
def test_every_real_hour_of_a_year(zone: str) -> None:
    found = walk(Cron("*/30 * * * *", zone), us("2030-01-01T00:00:00"), us("2031-01-01T00:00:00"))
    assert {later - earlier for earlier, later in pairwise(found)} == {30 * MINUTE}


ZONES = ["UTC", ROME, NEW_YORK, "Africa/Cairo", "America/Havana", "America/Santiago", "Asia/Beirut"]
TRANSITIONS = [
    # weeks around the jumps of those zones, and one without any
    *("2030-03-10", "2030-03-31", "2030-04-07", "2030-04-26", "2030-06-12", "2030-09-08"),
    *("2030-10-27", "2030-10-31", "2030-11-03"),
]
field = st.sets(st.integers(0, 59), min_size=1, max_size=4)
hour = st.sets(st.integers(0, 23) | st.integers(0, 3), min_size=1, max_size=5)


def numbers(values: set[int]) -> str:
    return ",".join(map(str, sorted(values)))


def real_time(minutes: set[int], hours: set[int], zone: str, start: int, end: int) -> list[int]:
    """Every minute of the world whose local time fits."""
    found: list[int] = []
    for tick in range(start // MINUTE * MINUTE, end + 1, MINUTE):
        here = moment(tick).astimezone(ZoneInfo(zone))
        if tick > start and here.minute in minutes and here.hour in hours:
            found.append(tick)
    return found


def times_of_day(minutes: set[int], hours: set[int], zone: str, start: int, end: int) -> list[int]:
    """Each named time of each local day, once: the first of two, or the end of the gap."""
    found: set[int] = set()
    here = ZoneInfo(zone)
    day = moment(start).astimezone(here).date() - timedelta(days=1)
    while day <= moment(end).astimezone(here).date():
        for named in (datetime(day.year, day.month, day.day, h, m) for h in hours for m in minutes):
            time = named
            while (real := time.replace(tzinfo=here)).astimezone(UTC).astimezone(here) != real:
                time += timedelta(minutes=1)
            tick = round(real.timestamp()) * SECOND
            if start < tick <= end:
                found.add(tick)
        day += timedelta(days=1)
    return sorted(found)


@settings(max_examples=150)
@given(
    zone=st.sampled_from(ZONES),
    day=st.sampled_from(TRANSITIONS),
    offset=st.integers(-2 * DAY, 2 * DAY),
    minutes=field,
    hours=hour,
    stars=st.sampled_from(["", "minute", "hour"]),
)
def test_cron_is_what_the_calendar_says(
    zone: str, day: str, offset: int, minutes: set[int], hours: set[int], stars: str
) -> None:
    """Against an oracle that looks at every minute, from any instant around a jump."""
    start = us(f"{day}T00:00:00") + offset
    end = start + 2 * DAY
    if stars == "minute":
        expression, minutes = f"* {numbers(hours)} * * *", set(range(60))
    elif stars == "hour":
        expression, hours = f"{numbers(minutes)} * * * *", set(range(24))
    else:
        expression = f"{numbers(minutes)} {numbers(hours)} * * *"
    oracle = real_time if stars else times_of_day
    assert walk(Cron(expression, zone), start, end) == oracle(minutes, hours, zone, start, end)


def test_the_end_of_time() -> None:
    assert Cron("0 0 1 1 *").after(limits.TIME_MAX) is None
    assert Cron("0 0 1 1 *", ROME).after(limits.TIME_MAX - SECOND) is None
    assert Every(limits.DURATION_MAX, 0).after(limits.TIME_MAX) is None
    assert Once(limits.TIME_MAX).after(0) == limits.TIME_MAX


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("a b c d e", "five fields"),
        ("*/0 * * * *", "bad minute"),
        ("5-1 * * * *", "bad minute"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("0 0 * * 5#9", "bad day-of-week"),
        ("0 0 3 * * *", "six fields"),
        ("@reboot", "@daily"),
        ("0 0 * * L", "bad day-of-week"),
        (7, "must be a string"),
        ("* " * 200, "at most 255"),
    ],
)
def test_a_bad_expression(expression: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        schedule_times.cron(expression, "UTC")


@settings(max_examples=300)
@given(st.text(alphabet="0123456789*/,-#LWMONFRI@ \0", max_size=30))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        spec = schedule_times.cron(text, "UTC")
    except InvalidArgument:
        return
    tick = spec.after(0)
    assert tick is not None
    assert tick > 0


@pytest.mark.parametrize("zone", ["Europe/Rom", "", "Europe", "../../etc/passwd", "zone.tab", None])
def test_an_unknown_time_zone(zone: str) -> None:
    with pytest.raises(InvalidArgument, match="no time zone is called"):
        schedule_times.cron("0 3 * * *", zone)


def test_without_cronsim_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(ModuleNotFoundError, match="pip install 'cronsim"):
        schedule_times.cron("0 3 * * *", "UTC")
    assert Every(SECOND, 0).after(0) == SECOND


# --- intervals and single times ------------------------------------------------------------------


@given(
    every=st.integers(SECOND, 400 * DAY),
    anchor=st.integers(0, 2 * 10**15),
    passed=st.integers(-DAY, 10 * DAY),
)
def test_an_interval_never_drifts(every: int, anchor: int, passed: int) -> None:
    tick = Every(every, anchor).after(anchor + passed)
    assert tick is not None
    assert (tick - anchor) % every == 0
    assert tick > max(anchor, anchor + passed)
    assert tick - every <= max(anchor, anchor + passed)


def test_a_single_time() -> None:
    assert Once(100).after(99) == 100
    assert Once(100).after(100) is None
    assert schedule_times.first(Once(100), 500) == 100  # in the past it is missed, not lost


# --- what is due ---------------------------------------------------------------------------------

specs = st.one_of(
    st.builds(Every, st.integers(SECOND, 3 * DAY), st.integers(0, 10 * DAY)),
    st.builds(
        Cron,
        st.sampled_from(["* * * * *", "*/7 3,4 * * *", "30 2 * * *", "0 * * * *", "0 0 * * MON"]),
        st.sampled_from(ZONES),
    ),
)


@settings(max_examples=100)
@given(spec=specs, start=st.integers(1_900 * 10**12, 1_930 * 10**12), span=st.integers(0, DAY))
def test_the_latest_tick_is_the_last_of_all(
    spec: schedule_times.Spec, start: int, span: int
) -> None:
    tick = spec.after(start)
    assert tick is not None
    assert (
        schedule_times.latest(spec, tick, tick + span) == [tick, *walk(spec, tick, tick + span)][-1]
    )


@settings(max_examples=100)
@given(
    spec=specs,
    start=st.integers(1_900 * 10**12, 1_930 * 10**12),
    late=st.integers(0, 5 * HOUR),
    missed=st.sampled_from("sob"),
    most=st.integers(1, 5),
)
def test_what_is_due(
    spec: schedule_times.Spec, start: int, late: int, missed: str, most: int
) -> None:
    tick = spec.after(start)
    assert tick is not None
    now = tick + late
    every = [tick, *walk(spec, tick, now)]
    found = schedule_times.due(spec, missed, tick, now, most)
    if missed == "b":
        assert found.ticks == every[:most]
        assert found.next_at == spec.after(found.ticks[-1])
        return
    assert found.next_at == spec.after(now)
    if missed == "o" or now - every[-1] <= schedule_times.grace(spec):
        assert found.ticks == every[-1:]
    else:
        assert found.ticks == []


def test_a_year_of_missed_minutes_is_one_tick_and_few_looks() -> None:
    looks = 0

    class Counting(Cron):
        def after(self, us: int) -> int | None:
            nonlocal looks
            looks += 1
            return super().after(us)

    start = us("2030-03-17T00:00:00")
    found = schedule_times.due(Counting("* * * * *", ROME), "o", start, start + 365 * DAY, 1)
    assert found.ticks == [start + 365 * DAY]
    assert looks < 100


@pytest.mark.parametrize(
    ("spec", "most"), [(Cron("* * * * *"), 60), (Every(5 * SECOND, 0), 5), (Every(DAY, 0), 60)]
)
def test_the_grace(spec: schedule_times.Spec, most: int) -> None:
    assert schedule_times.grace(spec) == most * SECOND


# --- as text -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [Cron("0 3 * * *", ROME), Every(5 * SECOND, 7), Once(9)])
def test_a_spec_survives_its_text(spec: schedule_times.Spec) -> None:
    assert schedule_times.decode(schedule_times.encode(spec)) == spec
    assert schedule_times.same(spec, schedule_times.decode(schedule_times.encode(spec)))


def test_the_anchor_is_not_the_users() -> None:
    assert schedule_times.same(Every(5, 1), Every(5, 2))
    assert not schedule_times.same(Every(5, 1), Every(6, 1))
    assert not schedule_times.same(Every(5, 1), Once(5))
    assert not schedule_times.same(Cron("0 3 * * *"), Cron("0 3 * * *", ROME))
