"""Every database does what the model does (docs/semantics.md), history by history.

``make model`` runs more of them. The seed is the session's (FAIRLEAD_SEED), or --hypothesis-seed.
"""

from __future__ import annotations

import os

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.model.backends import NAMES, target
from tests.model.machine import machine
from tests.model.profile import EXAMPLES, profile
from tests.model.steps import MINUTE, SECOND


@pytest.mark.timeout(0)  # as long as FAIRLEAD_MODEL_EXAMPLES asks for
@pytest.mark.parametrize("name", NAMES)
def test_the_database_does_what_the_model_does(name: str, request: pytest.FixtureRequest) -> None:
    with target(name) as database:
        tested = machine(database)
        if request.config.getoption("--hypothesis-seed") is None:
            tested = hypothesis.seed(int(os.environ["FAIRLEAD_SEED"]))(tested)
        run_state_machine_as_test(tested, settings=profile(EXAMPLES[name]))
        print(f"{name}: {tested.examples} histories, {tested.compared} comparisons")


def row(due: int, expires: int | None = None) -> tuple[object, ...]:
    row = ("c", b"1", 0, 0, due, 0, None, "e", 0, None, None, None, None, expires)
    return (*row, *[None] * 4)


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
