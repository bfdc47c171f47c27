"""Exit codes of processes as text."""

from __future__ import annotations

import signal


def describe(code: int | None) -> str:
    """Return how a process ended, such as "was killed by SIGKILL"."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-code}"
