"""Does the campaign find bugs? Short campaigns on copies of the package with a bug in each.

    python -m tests.campaign.mutants [name …]

The bugs are those of the model test (tests/model/mutations.py) that a campaign can see. A bug that
no check of the expected name reports fails the run; so does a violation without a bug.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.campaign.cast import ROOT, die_with_parent
from tests.model.mutants import build
from tests.model.mutations import MUTANTS

# The bug, and the check that must report it.
EXPECTED = {
    "": "",  # without a bug: no violation
    "ack-ignores-delivery": "stale verb",
    "verbs-ignore-delivery": "stale verb",
    "delivery-not-counted": "two leases",
    "queue-limit-ignored": "limit",
    "ordered-overtakes-a-retry": "order",
    "group-closes-over-leases": "group",
    "errors-not-counted": "totals",
    "dead-letter-not-counted": "totals",
}
MINUTES = os.environ.get("CAMPAIGN_MINUTES", "0.4")


def trial(name: str) -> tuple[bool, str]:
    """Was it found? And what the campaign printed."""
    mutant = next((one for one in MUTANTS if one.name == name), None)
    assert mutant is not None or not name, f"there is no mutant {name!r}"
    with tempfile.TemporaryDirectory() as directory:
        build(mutant, Path(directory))
        done = subprocess.run(
            [sys.executable, "-m", "tests.campaign"],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": directory,
                "CAMPAIGN_PACKAGE": directory,
                "CAMPAIGN_MINUTES": MINUTES,
                "CAMPAIGN_BACKENDS": "sqlite",
                "TMPDIR": directory,  # the history of a failure goes with it
            },
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=die_with_parent,
        )
    check = EXPECTED[name]
    found = f"VIOLATION: {check}:" in done.stdout if check else done.returncode == 0
    return found, done.stdout + done.stderr


def main(names: list[str]) -> int:
    survivors: list[str] = []
    for name in names or list(EXPECTED):
        found, text = trial(name)
        print(f"{name or '(no bug)':<28}{'ok' if found else 'NOT FOUND':<10}", flush=True)
        if not found:
            survivors.append(name or "(no bug)")
            print(text)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
