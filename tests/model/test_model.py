"""Every database does what the model does (docs/semantics.md), history by history.

`make test` runs a few of them, `make test-deep` others, `make model` more. The seed is that of the
session (FAIRTURN_SEED), or --hypothesis-seed.
"""

from __future__ import annotations

import os

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

from fairturn.core.rows import SendRow
from tests.model.backends import NAMES, target
from tests.model.machine import machine
from tests.model.profile import EXAMPLES, profile
from tests.model.steps import MINUTE, SECOND


@pytest.mark.timeout(0)  # as long as FAIRTURN_MODEL_EXAMPLES asks for
@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.deep) for n in (1, 2, 3))])
@pytest.mark.parametrize("name", NAMES)
def test_the_database_does_what_the_model_does(
    name: str, part: int, request: pytest.FixtureRequest
) -> None:
    with target(name) as database:
        tested = machine(database)
        if request.config.getoption("--hypothesis-seed") is None:
            tested = hypothesis.seed(int(os.environ["FAIRTURN_SEED"]) + part)(tested)
        examples = EXAMPLES[name] * (4 if part else 1)
        run_state_machine_as_test(tested, settings=profile(examples))
        print(f"{name}: {tested.examples} histories, {tested.compared} comparisons")


def row(due: int, expires: int | None = None) -> SendRow:
    return SendRow("c", b"1", 0, due_us=due, expires_us=expires)


@pytest.mark.parametrize("name", NAMES)
def test_those_of_one_instant_have_no_order(name: str) -> None:
    """A limit that would cut through them is not tried: each database would be right. What is not
    among them does not hide them: what was delivered before, or is past its expiry."""
    with target(name) as database:
        one = machine(database)()
        one.create({}, {})
        one.send("a", [row(0)])
        one.receive_all("a", 0, 1)
        one.fail("live", [0], False, "boom", 2 * SECOND, False)
        one.send("a", [row(5 * SECOND), row(5 * SECOND)])
        # On PostgreSQL the first one lies behind the second one now.
        one.reschedule("a", ("live", 1), None, None, None, -1)
        one.promote("a", MINUTE, 1)
        one.same()

        one.send("b", [row(2 * SECOND, 3 * SECOND), row(5 * SECOND), row(5 * SECOND)])
        one.reschedule("b", ("live", 1), None, None, None, -1)
        one.tick(6 * SECOND)
        one.maintain(1)
        one.same()
        one.teardown()


@pytest.mark.parametrize("name", NAMES)
def test_groups_are_closed_between_the_calls_of_one_step(name: str) -> None:
    """As the library does. A server closes them within the receive that ends the last member, the
    model after it: before the library's call, both are right."""
    with target(name) as database:
        one = machine(database)()
        one.create({"max_attempts": 1, "lease_us": SECOND}, {})
        one.group_life(("g", "a", "i", row(0), None), [("a", [row(0)])], True)
        one.receive_all("a", 0, 1)
        one.tick(2 * SECOND)
        # Its first receive finds the member dead; its second one the work at the end of the group.
        one.permit_life(MINUTE, "a", 1, SECOND)
        one.same()
        assert one.live()
        one.teardown()


@pytest.mark.parametrize("name", NAMES)
def test_a_minute_leaves_the_history_after_a_day(name: str) -> None:
    """Also one that nobody has looked at since: on a server its counters are not folded yet."""
    with target(name) as database:
        one = machine(database)()
        one.create({}, {})
        one.send("a", [row(0)])
        one.tick(2 * 24 * 60 * MINUTE)
        one.maintain(1000)
        one.call("history", "a", 0, one.now)
        one.teardown()
