"""How many histories are lived through, and how Hypothesis draws them."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider


class Fair(HypothesisProvider):
    """Fresh numbers for every example. Hypothesis itself would mutate the examples before: right
    for parsers, but four of five steps of such a history have been seen already."""

    def draw_integer(self, min_value: Any = None, max_value: Any = None, **more: Any) -> int:
        if self._random is None or min_value is None or max_value is None:
            return super().draw_integer(min_value, max_value, **more)
        return self._random.randint(min_value, max_value)


AVAILABLE_PROVIDERS["fair"] = Fair

# Examples of `make test`: a server takes ten times as long for a step.
EXAMPLES = {"sqlite": 40, "postgresql": 12, "mysql": 12}


def profile(examples: int, phases: tuple[Phase, ...] | None = None) -> settings:
    """So many examples of 60 steps; FAIRTURN_MODEL_EXAMPLES and FAIRTURN_MODEL_STEPS ask for more.

    No example database: a run is told by its seed alone, which the session prints.
    """
    return settings(
        max_examples=int(os.environ.get("FAIRTURN_MODEL_EXAMPLES", examples)),
        stateful_step_count=int(os.environ.get("FAIRTURN_MODEL_STEPS", 60)),
        backend="fair",
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        phases=phases or (Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
