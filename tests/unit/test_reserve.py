"""Slots kept for urgent work: a pure table. The enforcer cases are rsqueue's, mirrored: there a
small number is urgent, here a large one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairturn import InvalidArgument
from fairturn.worker.plan import Plan
from fairturn.worker.reserve import Reserve

DEFAULTS = {-1: 2, -3: 2}
OVERRIDE = {-1: 99}


def test_rsqueue_enforcer_check_0_anything_may_start() -> None:
    assert Reserve({**DEFAULTS, **OVERRIDE}).check(0) == (2, None)


def test_rsqueue_enforcer_check_2_only_the_urgent_may_start() -> None:
    assert Reserve({**DEFAULTS, **OVERRIDE}).check(2) == (97, -1)


def test_rsqueue_enforcer_check_100_nothing_may_start() -> None:
    assert Reserve({**DEFAULTS, **OVERRIDE}).check(100) == (0, None)


def test_rsqueue_enforcer_defaults_alone() -> None:
    reserve = Reserve(DEFAULTS)
    assert reserve.check(1) == (1, None)
    assert reserve.check(2) == (0, None)


def test_rsqueue_enforcer_verify() -> None:
    Reserve({**DEFAULTS, **OVERRIDE}).verify()
    with pytest.raises(InvalidArgument, match="priority -1 may use 99 slots"):
        Reserve({-1: 99, -3: 100})


def test_the_example_of_the_docs() -> None:
    reserve = Reserve({10: 8, 0: 5})
    assert reserve.max_running == 8
    assert [reserve.check(n) for n in (0, 4, 5, 7, 8)] == [
        (5, None),
        (1, None),
        (3, 10),
        (1, 10),
        (0, None),
    ]


def test_a_limit_of_nothing_leaves_only_the_urgent() -> None:
    assert Reserve({0: 0, 10: 3}).check(0) == (3, 10)


@pytest.mark.parametrize("limits", [{0: -1}, {}, {0: 0}, {0: 0, 5: 0}])
def test_a_reserve_under_which_nothing_could_run_is_refused(limits: Mapping[int, int]) -> None:
    with pytest.raises(InvalidArgument, match="reserve"):
        Reserve(limits)


def test_a_reserve_must_fit_into_the_concurrency() -> None:
    with pytest.raises(InvalidArgument, match="allows 8 running handlers, but concurrency is 7"):
        Plan(7, {"q": 1}, reserve=Reserve({0: 5, 10: 8}))
    Plan(8, {"q": 1}, reserve=Reserve({0: 5, 10: 8}))


@given(
    st.dictionaries(st.integers(-9, 9), st.integers(1, 20), min_size=1).map(
        lambda d: dict(zip(sorted(d), sorted(d.values()), strict=True))
    ),
    st.integers(0, 25),
)
def test_what_may_start_is_what_the_limits_say(limits: dict[int, int], running: int) -> None:
    n, floor = Reserve(limits).check(running)
    open_for = [priority for priority, limit in limits.items() if running < limit]
    if not open_for:
        assert n == 0
    else:
        assert n == limits[min(open_for)] - running > 0
        assert floor == (None if min(open_for) == min(limits) else min(open_for))
