"""Does the campaign find bugs? Short campaigns on copies of the package with a bug in each.

    python -m tests.campaign.mutants [name …]

The bugs are those of the model test (tests/model/mutations.py) that a campaign can see, and one
that only a campaign with a restored backup sees. A bug that no check of the expected name reports
fails the run; so does a violation without a bug.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.campaign.cast import ROOT, die_with_parent
from tests.model.mutants import build
from tests.model.mutations import MUTANTS, RECEIVING, Mutant

# The bug, and the check that must report it.
EXPECTED = {
    "": "",  # without a bug: no violation
    "ack-ignores-the-token": "stale verb",
    "verbs-ignore-the-token": "stale verb",
    "delivery-not-counted": "two leases",
    "queue-limit-ignored": "limit",
    "ordered-overtakes-a-retry": "order",
    "group-closes-over-leases": "group",
    "errors-not-counted": "totals",
    "dead-letter-not-counted": "totals",
}
# As leases were before decision 011. Only a database that is set back shows it.
COUNTED = Mutant(
    "token-is-the-delivery-number",
    RECEIVING,
    "deliveries = deliveries + 1, token = :token,",
    "deliveries = deliveries + 1, token = deliveries + 1 + 0 * :token,",
)
EXPECTED[COUNTED.name] = "old lease"
RESTORED = {COUNTED.name}  # with a restored backup
MINUTES = os.environ.get("CAMPAIGN_MINUTES", "0.4")


def mutant_of(name: str) -> Mutant | None:
    mutant = next((one for one in [*MUTANTS, COUNTED] if one.name == name), None)
    assert mutant is not None or not name, f"there is no mutant {name!r}"
    return mutant


def trial(name: str) -> tuple[bool, str]:
    """Was it found? And what the campaign printed."""
    mutant = mutant_of(name)
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
                "CAMPAIGN_RESTORE": "1" if name in RESTORED else "",
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
