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


@pytest.mark.timeout(0)  # as long as FAIRLEAD_MODEL_EXAMPLES asks for
@pytest.mark.parametrize("name", NAMES)
def test_the_database_does_what_the_model_does(name: str, request: pytest.FixtureRequest) -> None:
    with target(name) as database:
        tested = machine(database)
        if request.config.getoption("--hypothesis-seed") is None:
            tested = hypothesis.seed(int(os.environ["FAIRLEAD_SEED"]))(tested)
        run_state_machine_as_test(tested, settings=profile(EXAMPLES[name]))
        print(f"{name}: {tested.examples} histories, {tested.compared} comparisons")
