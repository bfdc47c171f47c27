"""The worker's plan: every decision, with a clock that is only a number."""

from __future__ import annotations

from collections.abc import Sized

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairturn import InvalidArgument
from fairturn.core.limits import RECEIVE_MAX
from fairturn.execution.polling import LISTENING, POLLING
from fairturn.worker.plan import HORIZON, NO_PREFETCH, OUTAGE_PAUSES, SCARCE, Claim, Plan
from fairturn.worker.reserve import Reserve

NO_ACKS: dict[str, Sized] = {}


def plan_of(concurrency: int = 10, prefetch: int = 1000, **weights: int) -> Plan:
    return Plan(concurrency, weights or {"q": 1}, prefetch=prefetch)


def ask(plan: Plan, now: float = 0.0, acks: dict[str, Sized] = NO_ACKS) -> Claim:
    claim = plan.claim(now, acks)
    assert claim is not None
    return claim


def give(
    plan: Plan,
    claim: Claim,
    given: int,
    now: float = 0.0,
    *,
    retry_after: float | None = None,
    listening: bool = False,
) -> None:
    """The database answers, and what it gave starts while there are slots."""
    plan.received(claim, given, retry_after, listening, now)
    while plan.buffered and plan.may_start():
        plan.started()


def end(plan: Plan, count: int, seconds: float = 1.0) -> None:
    """Handlers end, and what waits takes their slots."""
    for _ in range(count):
        plan.finished(seconds)
        if plan.buffered:
            plan.started()


def slept(plan: Plan, now: float = 0.0, *, listening: bool = False) -> None:
    """Ask until every queue sleeps."""
    while (claim := plan.claim(now, NO_ACKS)) is not None:
        give(plan, claim, 0, now, listening=listening)


# --- what cannot be -------------------------------------------------------------------------------
def test_arguments_are_checked() -> None:
    for make, text in (
        (lambda: Plan(0, {"q": 1}), "concurrency must be at least 1"),
        (lambda: Plan(1, {"q": 1}, prefetch=-1), "prefetch must not be negative"),
        (lambda: Plan(1, {"q": 0}), "weight of queue 'q' must be at least 1"),
    ):
        with pytest.raises(InvalidArgument, match=text):
            make()


# --- how much -------------------------------------------------------------------------------------
def test_the_first_claim_fills_the_slots_and_no_more() -> None:
    plan = plan_of(10)
    assert ask(plan) == Claim("q", 10)
    give(plan, ask(plan), 10)
    assert plan.running == 10
    assert not plan.may_start()
    assert plan.claim(0, NO_ACKS) is None


def test_a_free_slot_is_claimed_for() -> None:
    plan = plan_of(10)
    give(plan, ask(plan), 10)
    end(plan, 3)
    assert ask(plan) == Claim("q", 3)


def test_a_short_answer_leaves_room_for_the_next_claim() -> None:
    plan = plan_of(10)
    give(plan, ask(plan), 4)
    plan.woken("q")
    assert ask(plan).n == 6


def test_slow_handlers_get_nothing_in_advance() -> None:
    plan = plan_of(10)
    give(plan, ask(plan), 10)
    end(plan, 1, seconds=1.0)
    assert plan.prefetch(0) == 0
    assert ask(plan).n == 1


def test_prefetching_follows_littles_law() -> None:
    plan = plan_of(10)
    give(plan, ask(plan), 10)
    end(plan, 10, seconds=0.001)
    assert plan.prefetch(0) == int(10 * HORIZON[0] / 0.001) == 200
    assert ask(plan).n == 210


def test_prefetching_is_bounded() -> None:
    plan = plan_of(10, prefetch=7)
    give(plan, ask(plan), 10)
    end(plan, 10, seconds=0.0)
    assert plan.prefetch(0) == 7
    assert ask(plan).n == 17
    plan = plan_of(10, prefetch=0)
    give(plan, ask(plan), 10)
    end(plan, 10, seconds=0.0)
    assert ask(plan).n == 10


def test_a_claim_is_no_larger_than_a_receive_may_be() -> None:
    assert ask(plan_of(RECEIVE_MAX + 5)).n == RECEIVE_MAX


def test_the_mean_follows_the_handlers() -> None:
    plan = plan_of(1)
    give(plan, ask(plan), 1)
    end(plan, 1, seconds=0.001)
    assert plan.prefetch(0) == 20
    for _ in range(200):
        plan.woken("q")
        give(plan, ask(plan), 1)
        end(plan, 1, seconds=10.0)
    assert plan.prefetch(0) == 0


def test_with_enough_in_hand_it_waits_until_half_is_used_up() -> None:
    plan = plan_of(10)
    give(plan, ask(plan), 10)
    end(plan, 10, seconds=0.002)  # 100 may wait
    give(plan, ask(plan), 110)
    assert (plan.running, plan.buffered) == (10, 100)
    end(plan, 49, seconds=0.002)
    assert plan.claim(0, NO_ACKS) is None
    end(plan, 1, seconds=0.002)
    assert (plan.running, plan.buffered) == (10, 50)
    assert ask(plan).n == 50


def test_what_went_back_makes_it_shy_for_a_while() -> None:
    plan = plan_of(10)
    give(plan, ask(plan), 10)
    end(plan, 10, seconds=0.001)
    give(plan, ask(plan), 210)
    assert plan.buffered == 200
    plan.buffered -= 200
    plan.stop_prefetching(100.0)
    assert plan.buffered == 0
    assert plan.claim(100.0, NO_ACKS) is None
    end(plan, 1, seconds=0.001)
    assert ask(plan, 100.0).n == 1
    assert plan.prefetch(100.0 + NO_PREFETCH) > 0


# --- which queue ----------------------------------------------------------------------------------
def test_a_queue_that_gave_all_is_asked_again_at_once() -> None:
    plan = plan_of(2)
    give(plan, ask(plan), 2)
    end(plan, 2)
    assert ask(plan) == Claim("q", 2)
    assert plan.pause(0) is None


@pytest.mark.parametrize("listening", [False, True])
def test_a_sleeping_queue_is_not_asked_before_its_time(listening: bool) -> None:
    plan = plan_of(2)
    first, most = LISTENING if listening else POLLING
    now, pause = 50.0, first
    for _ in range(12):
        give(plan, ask(plan, now), 0, now, listening=listening)
        assert plan.claim(now, NO_ACKS) is None
        assert plan.pause(now) == pytest.approx(pause)
        assert plan.claim(now + pause * 0.9, NO_ACKS) is None
        now += pause * 1.001
        pause = min(pause * 2, most)
    assert pause == most


def test_retry_after_cuts_the_sleep_short() -> None:
    plan = plan_of()
    for _ in range(10):
        slept(plan, listening=True)
        plan.queues["q"].idle_until = 0.0
    give(plan, ask(plan), 0, 0.0, retry_after=0.25, listening=True)
    assert plan.pause(0.0) == pytest.approx(0.25)
    assert plan.claim(0.24, NO_ACKS) is None
    assert ask(plan, 0.25).queue == "q"


def test_a_far_retry_after_does_not_prolong_the_sleep() -> None:
    plan = plan_of()
    give(plan, ask(plan), 0, 0.0, retry_after=3600, listening=True)
    assert plan.pause(0.0) == pytest.approx(LISTENING[0])


def test_what_was_given_starts_the_pauses_anew() -> None:
    plan = plan_of()
    now = 0.0
    for _ in range(10):
        slept(plan, now)
        now += 10
    give(plan, ask(plan, now), 1, now)
    assert plan.pause(now) == pytest.approx(POLLING[0])


def test_a_woken_queue_is_asked() -> None:
    plan = plan_of()
    slept(plan, listening=True)
    plan.woken("q")
    assert ask(plan).queue == "q"
    slept(plan, listening=True)
    assert plan.pause(0) == pytest.approx(LISTENING[0])


def test_acks_make_it_ask() -> None:
    plan = plan_of(a=1, b=1)
    slept(plan, listening=True)
    assert plan.claim(0, {"b": []}) is None
    assert ask(plan, acks={"b": ["an ack"]}).queue == "b"


def test_acks_wait_when_there_is_no_room() -> None:
    plan = plan_of(1)
    give(plan, ask(plan), 1)
    assert plan.claim(0, {"q": ["an ack"]}) is None


def test_one_sleeping_queue_does_not_keep_the_others_waiting() -> None:
    plan = plan_of(10, a=1, b=1)
    first = ask(plan)
    give(plan, first, 0)
    other = ask(plan)
    assert other.queue != first.queue
    assert other.n == 10


def test_a_claim_is_divided_by_the_weights_of_the_ready() -> None:
    plan = plan_of(12, a=1, b=3, c=2)
    assert ask(plan) == Claim("a", 2)
    give(plan, ask(plan), 2)
    assert ask(plan) == Claim("b", 5)


# --- shares ---------------------------------------------------------------------------------------
WEIGHTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=1)


@given(WEIGHTS, st.integers(1, 40), st.integers(1, 60), st.data())
def test_full_queues_get_shares_in_proportion(
    weights: dict[str, int], concurrency: int, rounds: int, data: st.DataObject
) -> None:
    plan = Plan(concurrency, weights)
    got = dict.fromkeys(weights, 0)
    most = 0.0
    for _ in range(rounds):
        claim = ask(plan)
        give(plan, claim, claim.n)
        got[claim.queue] += claim.n
        most = max(most, claim.n / weights[claim.queue])
        end(plan, data.draw(st.integers(1, plan.running)))
    shares = [got[name] / weight for name, weight in weights.items()]
    assert max(shares) - min(shares) <= most + 1e-6


@given(WEIGHTS, st.integers(1, 40), st.data())
def test_slots_are_never_idle_while_a_queue_has_messages(
    weights: dict[str, int], concurrency: int, data: st.DataObject
) -> None:
    plan = Plan(concurrency, weights)
    stock = {name: data.draw(st.integers(0, 60), name) for name in weights}
    todo, now = sum(stock.values()), 0.0
    while todo:
        while (claim := plan.claim(now, NO_ACKS)) is not None:
            given = min(claim.n, stock[claim.queue])
            stock[claim.queue] -= given
            todo -= given
            give(plan, claim, given, now)
            now += 1e-6  # or a queue of pace 0 would be asked for ever
        assert plan.running + plan.buffered >= concurrency or not any(stock.values())
        if plan.running:
            end(plan, data.draw(st.integers(1, plan.running)))
    assert sum(stock.values()) == 0


@pytest.mark.parametrize("how", ["woken", "polled", "acks"])
def test_a_queue_does_not_get_back_the_turns_it_had_nothing_for(how: str) -> None:
    plan = plan_of(10, busy=1, late=1)
    now = 0.0
    for _ in range(1000):
        claim = ask(plan, now)
        give(plan, claim, claim.n if claim.queue == "busy" else 0, now, listening=True)
        end(plan, plan.running)
    now += 100 if how == "polled" else 0  # its pause is over, and now it has messages
    acks: dict[str, Sized] = {"late": ["an ack"]} if how == "acks" else {}
    if how == "woken":
        plan.woken("late")
    got = {"busy": 0, "late": 0}
    for _ in range(100):
        claim = ask(plan, now, acks)
        give(plan, claim, claim.n, now)
        got[claim.queue] += claim.n
        end(plan, plan.running)
    assert abs(got["busy"] - got["late"]) <= 20, got


def test_a_woken_queue_among_sleepers_keeps_its_place() -> None:
    plan = plan_of(10, a=1, b=1)
    give(plan, Claim("a", 10), 9)
    slept(plan)
    before = plan.queues["a"].served
    plan.woken("a")
    assert plan.queues["a"].served == before


# --- the reserve ----------------------------------------------------------------------------------
def reserving(**weights: int) -> Plan:
    return Plan(8, weights or {"q": 1}, reserve=Reserve({0: 5, 10: 8}))


def test_the_reserve_is_claimed_for_the_urgent_only() -> None:
    plan = reserving()
    assert ask(plan) == Claim("q", 5, None)
    give(plan, ask(plan), 5)
    assert ask(plan) == Claim("q", 3, 10)
    give(plan, ask(plan), 3)
    assert plan.claim(0, NO_ACKS) is None
    end(plan, 2)
    assert ask(plan) == Claim("q", 2, 10)
    end(plan, 2)
    assert ask(plan) == Claim("q", 1, None)


def test_nothing_is_prefetched_with_a_reserve() -> None:
    plan = reserving()
    give(plan, ask(plan), 5)
    end(plan, 5, seconds=0.0)
    assert plan.prefetch(0) == 0
    assert ask(plan).n == 5


def test_a_queue_without_urgent_messages_is_asked_when_an_ordinary_slot_is_free() -> None:
    plan = reserving()
    give(plan, ask(plan), 5, listening=True)
    give(plan, ask(plan), 0, listening=True)  # nothing urgent is there
    assert plan.claim(0, NO_ACKS) is None
    end(plan, 1)  # it failed, say: no ack to carry
    assert ask(plan) == Claim("q", 1, None)
    give(plan, ask(plan), 0, listening=True)
    assert plan.claim(0, NO_ACKS) is None


def test_pause_knows_the_queue_that_slept_for_want_of_urgent_messages() -> None:
    plan = reserving()
    give(plan, ask(plan), 5, listening=True)
    give(plan, ask(plan), 0, listening=True)
    assert plan.pause(0) == pytest.approx(LISTENING[0])


# --- when not to ----------------------------------------------------------------------------------
def test_trouble_backs_off_and_is_forgotten() -> None:
    plan = plan_of()
    now, pauses = 10.0, []
    for _ in range(8):
        pause = plan.database_failed(now)
        pauses.append(pause)
        assert plan.in_outage_pause(now)
        assert plan.claim(now, NO_ACKS) is None
        assert plan.pause(now) == pytest.approx(pause)
        now += pause + 1e-9
        assert not plan.in_outage_pause(now)
        assert ask(plan, now).n == 10
    assert pauses == [min(OUTAGE_PAUSES[0] * 2**i, OUTAGE_PAUSES[1]) for i in range(8)]
    give(plan, ask(plan, now), 0, now)
    assert plan.database_failed(now) == OUTAGE_PAUSES[0]


def test_nothing_is_claimed_while_the_heartbeat_fails() -> None:
    plan = plan_of()
    plan.heartbeat(False)
    assert plan.claim(0, {"q": ["an ack"]}) is None
    assert plan.pause(0) is None
    plan.heartbeat(True)
    assert ask(plan).n == 10


def test_nothing_is_claimed_when_stopping() -> None:
    plan = plan_of()
    slept(plan)
    plan.stop()
    plan.woken("q")
    assert plan.stopping
    assert plan.claim(100, {"q": ["an ack"]}) is None
    assert plan.pause(100) is None


# --- claim and pause agree ------------------------------------------------------------------------
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.floats(0, 1), st.none() | st.just(0.0) | st.floats(1e-6, 2)),
        st.tuples(st.just("end"), st.integers(1, 9), st.floats(0.01, 2)),
        st.tuples(st.just("wake"), st.sampled_from("ab"), st.none()),
        st.tuples(st.just("wait"), st.floats(0, 1), st.none()),
        st.tuples(st.just("trouble"), st.none(), st.none()),
    ),
    max_size=40,
)


@given(STEPS, st.booleans(), st.booleans())
def test_pause_is_when_claim_changes_its_mind(steps: list, listening: bool, reserve: bool) -> None:
    plan = Plan(9, {"a": 1, "b": 3}, reserve=Reserve({0: 4, 5: 9}) if reserve else None)
    now = 0.0
    for kind, first, second in steps:
        claim = plan.claim(now, NO_ACKS)
        if kind == "claim" and claim is not None:
            give(plan, claim, round(claim.n * first), now, retry_after=second, listening=listening)
        elif kind == "end":
            end(plan, min(first, plan.running), second)
        elif kind == "wake":
            plan.woken(first)
        elif kind == "wait":
            now += first
        elif kind == "trouble":
            plan.database_failed(now)
        if plan.claim(now, NO_ACKS) is None:
            pause = plan.pause(now)
            if pause is None:
                assert plan.claim(now + 1e6, NO_ACKS) is None
            else:
                assert pause > 0
                assert plan.claim(now + pause * 0.999, NO_ACKS) is None
                if not plan.in_outage_pause(now):
                    assert plan.claim(now + pause * 1.001 + 1e-9, NO_ACKS) is not None
        assert 0 <= plan.running <= plan.concurrency
        assert plan.buffered >= 0


# --- limited channels -----------------------------------------------------------------------------
def test_a_queue_that_had_too_little_is_asked_for_what_its_acks_make_room_for() -> None:
    plan = plan_of(10)
    give(plan, ask(plan), 6)
    end(plan, 4)
    assert ask(plan, acks={"q": [1, 2, 3, 4]}).n == 4
    plan.woken("q")
    assert ask(plan, acks={"q": [1, 2, 3, 4]}).n == 4  # the end of its own acks wakes it, too
    assert ask(plan, SCARCE, acks={"q": [1, 2, 3, 4]}).n == 8  # from time to time, for all
    assert ask(plan).n == 8  # without acks it cannot be told


def test_a_queue_that_had_nothing_is_asked_for_all() -> None:
    plan = plan_of(10)
    give(plan, ask(plan), 10)
    end(plan, 10)
    give(plan, ask(plan), 0)
    assert ask(plan, acks={"q": [1]}).n == 10
