"""Does the model machine find bugs? Break SQLite's backend on purpose and see.

    python -m tests.model.mutants [name …]

Each mutant is a substitution in a copy of the package. The machine must tell the copy from the
model within EXAMPLES histories; a mutant that survives, or a substitution whose text is no longer
there, fails the run. The unchanged copy goes first and must pass.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXAMPLES = int(os.environ.get("FAIRLEAD_MUTANT_EXAMPLES", "400"))
AT_ONCE = int(os.environ.get("FAIRLEAD_MUTANT_JOBS", "2"))
SQL = "statements.sql"


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str  # in backends/sqlite
    old: str
    new: str
    times: int = 1  # how often the text must occur; all are changed


MUTANTS = [
    # --- fencing -----------------------------------------------------------------------------
    Mutant("ack-ignores-delivery", SQL, "AND deliveries = :delivery AND", "AND :delivery > 0 AND"),
    Mutant(
        "verbs-ignore-delivery",
        SQL,
        """SELECT id, deliveries, attempts, coalesce(max_attempts, :queue_attempts)
FROM fairlead_message
WHERE (id, deliveries) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:leases))
  AND""",
        """SELECT id, json_extract(value, '$[1]'), attempts, coalesce(max_attempts, :queue_attempts)
FROM fairlead_message
JOIN (SELECT value FROM json_each(:leases)) ON id = json_extract(value, '$[0]')
WHERE""",
    ),
    Mutant(
        "ack-takes-other-queues-leases",
        SQL,
        "AND deliveries = :delivery AND +lane = :lane AND",
        "AND deliveries = :delivery AND :lane > 0 AND",
    ),
    Mutant(
        "delivery-not-counted",
        SQL,
        "deliveries = deliveries + 1,",
        "deliveries = max(deliveries, 1),",
    ),
    Mutant("cancel-without-force", "messages.py", 'row[1] not in "hsr"', 'row[1] not in "hsrl"'),
    # --- instants ----------------------------------------------------------------------------
    Mutant(
        "due-is-exclusive",
        SQL,
        "AND state = 's' AND due_at <= :now\n    ORDER BY due_at, id",
        "AND state = 's' AND due_at < :now\n    ORDER BY due_at, id",
    ),
    Mutant("born-ready-is-exclusive", "sending.py", "if due <= queue.now", "if due < queue.now"),
    Mutant(
        "lease-end-is-exclusive",
        SQL,
        "AND m.state = 'l' AND m.lease_until <= :now\nORDER BY",
        "AND m.state = 'l' AND m.lease_until < :now\nORDER BY",
    ),
    Mutant(
        "expiry-is-exclusive",
        SQL,
        "WHERE lane = :lane AND expires_at <= :now\n    ORDER BY",
        "WHERE lane = :lane AND expires_at < :now\n    ORDER BY",
    ),
    Mutant(
        "retention-is-exclusive",
        SQL,
        "AND state = 'd' AND finished_at <= :before",
        "AND state = 'd' AND finished_at < :before",
    ),
    # --- attempts and death ------------------------------------------------------------------
    Mutant("attempts-not-counted", SQL, "state = 'l', attempts = attempts + 1,", "state = 'l',"),
    Mutant(
        "one-attempt-too-many", "verbs.py", "attempts >= max_attempts", "attempts > max_attempts"
    ),
    Mutant(
        "lapse-ignores-attempts",
        "care.py",
        "if max_attempts == 0 or attempts < max_attempts:",
        "if max_attempts == 0 or attempts <= max_attempts:",
    ),
    Mutant("release-keeps-the-attempt", SQL, "attempts = max(attempts - 1, 0),", ""),
    Mutant(
        "defer-keeps-attempts",
        SQL,
        "due_at = :due_at, attempts = 0, recovered = 0,",
        "due_at = :due_at, recovered = 0,",
    ),
    Mutant(
        "redrive-keeps-attempts",
        SQL,
        "due_at = :due_at, attempts = 0, begun = 0,\n    finished_at = NULL\nWHERE",
        "due_at = :due_at, begun = 0,\n    finished_at = NULL\nWHERE",
    ),
    Mutant("backoff-off-by-one", "verbs.py", "range(attempts - 1)", "range(attempts)"),
    Mutant(
        "dead-letter-keeps-key",
        SQL,
        "due_at = :now, attempts = 0, key = NULL,",
        "due_at = :now, attempts = 0,",
    ),
    Mutant(
        "dead-letter-keeps-expiry",
        SQL,
        "expires_at = :expires_at, error = :error,",
        "expires_at = coalesce(:expires_at, expires_at), error = :error,",
    ),
    Mutant("dead-letter-to-itself", "care.py", "and queue.dead_letter != name:", ":"),
    Mutant("recovered-flag-lost", SQL, "SET state = 'r', recovered = 1,", "SET state = 'r',"),
    Mutant(
        "redrive-newest-first",
        SQL,
        "state = 'x'\nORDER BY finished_at, id LIMIT",
        "state = 'x'\nORDER BY finished_at DESC, id LIMIT",
    ),
    # --- what is kept ------------------------------------------------------------------------
    Mutant("memo-erased-when-omitted", "verbs.py", "if not keep_memo:", "if True:"),
    Mutant("ack-ignores-retention", "verbs.py", "if queue.retention_us > 0:", "if False:"),
    Mutant(
        "done-kept-for-ever",
        SQL,
        "AND state = 'd' AND finished_at <= :before",
        "AND state = 'd' AND finished_at <= :before AND false",
    ),
    Mutant(
        "complete-keeps-error", SQL, "attempts = 0,\n    error = NULL, begun", "attempts = 0, begun"
    ),
    Mutant("extend-shortens", SQL, "max(lease_until, :now + coalesce", "max(0, :now + coalesce"),
    # --- keys --------------------------------------------------------------------------------
    Mutant("dead-keep-their-keys", SQL, "SET key = NULL WHERE id IN", "SET key = key WHERE id IN"),
    Mutant(
        "purge-leaves-keys",
        SQL,
        "ON m.lane = :lane AND m.key = k.value",
        "ON m.lane <= :lane AND m.key = k.value",
    ),
    Mutant("replace-of-leased", "sending.py", 'elif holder[1] == "l":', 'elif holder[1] == "h":'),
    Mutant(
        "replace-keeps-memo",
        SQL,
        "    memo = NULL, error = NULL, result",
        "    error = NULL, result",
    ),
    Mutant(
        "conflict-sends-the-rest",
        "sending.py",
        "if any(outcome == CONFLICT for",
        "if any(outcome == 'no' for",
    ),
    # --- limits and fairness -----------------------------------------------------------------
    Mutant(
        "max-size-counts-only-ready",
        SQL,
        """WHERE lane = :lane AND channel = :channel AND (state = 'l' OR state = 's' OR state = 'h')
    UNION""",
        """WHERE lane = :lane AND channel = :channel AND (state = 'h')
    UNION""",
    ),
    Mutant(
        "permitted-leases-bypass-the-limit",
        SQL,
        "m.channel = c.value AND m.state = 'l'),\n    coalesce",
        "m.channel = c.value AND m.state = 'l' AND m.permit_id IS NULL),\n    coalesce",
    ),
    Mutant(
        "queue-limit-ignored",
        "receiving.py",
        "call.left = max(0, min(call.left, free, gate.allowed))",
        "call.left = max(0, min(call.left, gate.allowed))",
    ),
    Mutant("weight-ignored", "gates.py", "Channel(name, policy.weight,", "Channel(name, 1,", 2),
    Mutant(
        "a-turn-never-ends",
        "fairness.py",
        "return self.credit - 1 - (given - 1) % self.credit",
        "return self.credit",
    ),
    Mutant("rate-not-charged", SQL, "DO UPDATE SET tat = excluded.tat", "DO UPDATE SET tat = tat"),
    Mutant(
        "rate-charged-once-per-call",
        "receiving.py",
        "c.base + k * c.interval",
        "c.base + c.interval",
    ),
    Mutant("burst-off-by-one", "gates.py", "// interval + 1", "// interval + 2"),
    Mutant(
        "queue-rate-not-charged",
        SQL,
        "SET tat = :tat WHERE id",
        "SET tat = min(tat, :tat) WHERE id",
    ),
    Mutant("paused-queue-gives", "receiving.py", "if not found.paused:", "if True:"),
    Mutant(
        "ordered-overtakes-a-retry",
        SQL,
        "AND m.begun = 1 AND m.state = 's')",
        "AND m.begun = 2 AND m.state = 's')",
    ),
    Mutant("ordered-overtakes-a-lease", "gates.py", "(leased or blocked)", "blocked"),
    Mutant("begun-forgotten", SQL, "SET begun = 1 WHERE id IN", "SET begun = 0 WHERE id IN"),
    Mutant(
        "priority-ignored-in-merge",
        SQL,
        """ LIMIT :limit)
ORDER BY m.channel, m.rank, m.due_at, m.id""",
        """ LIMIT :limit)
ORDER BY m.channel, m.due_at, m.id""",
        2,
    ),
    Mutant("max-bytes-cuts-late", "receiving.py", "total > max_bytes", "total > max_bytes + 1"),
    # --- permits -----------------------------------------------------------------------------
    Mutant(
        "expired-permit-revived",
        SQL,
        "WHERE id = :id AND expires_at > :now RETURNING 1",
        "WHERE id = :id AND :now > 0 RETURNING 1",
    ),
    Mutant("live-permit-ignored", "care.py", "live.append(id)\n            continue", "pass"),
    # --- counters ----------------------------------------------------------------------------
    Mutant("recovered-not-counted", "care.py", "counted[RECOVERED] += len(ready)", "pass"),
    Mutant(
        "errors-not-counted",
        "verbs.py",
        "counted[FAILED] = counted[ERRORS] = len(valid)",
        "counted[FAILED] = len(valid)",
    ),
    Mutant("expired-counts-the-delivered", SQL, "RETURNING deliveries = 0", "RETURNING 1"),
    Mutant("dead-letter-not-counted", "care.py", "sent[SENT] = len(ids)", "sent[SENT] = 0"),
    Mutant(
        "stats-forget-lapsed-leases",
        SQL,
        "WHERE m.lane = :lane AND m.state = 'l' AND m.lease_until <= :now AND p.id IS NULL\n\n",
        "WHERE m.lane = :lane AND m.state = 'l' AND m.lease_until < :now AND p.id IS NULL\n\n",
    ),
]


def build(mutant: Mutant | None, directory: Path) -> None:
    """A copy of the package with the mutation in it."""
    shutil.copytree(
        ROOT / "src" / "fairlead",
        directory / "fairlead",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    if mutant is not None:
        path = directory / "fairlead" / "backends" / "sqlite" / mutant.file
        text = path.read_text(encoding="utf-8")
        found = text.count(mutant.old)
        if found != mutant.times:
            raise LookupError(
                f"mutant {mutant.name}: its text occurs {found} times in {mutant.file}, not "
                f"{mutant.times}; write it anew"
            )
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def trial(mutant: Mutant | None) -> dict[str, Any]:
    """Run the machine on the copy, in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        build(mutant, Path(directory))
        # The copy must come before the installed package.
        paths = os.pathsep.join((directory, str(ROOT)))
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tests.model.mutants", "--trial"],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"the trial itself failed:\n{done.stdout}\n{done.stderr}")
    report = json.loads(done.stdout.splitlines()[-1])
    return {**report, "seconds": time.monotonic() - started}


def run_trial() -> None:
    """In the child: one line of JSON, what the machine found and after how many histories."""
    import hypothesis
    from hypothesis import Phase
    from hypothesis.stateful import run_state_machine_as_test

    import fairlead
    from tests.model.backends import target
    from tests.model.machine import machine, profile
    from tests.model.pair import Difference

    assert Path(fairlead.__file__).parents[1] == Path.cwd(), "not the copy was imported"
    caught = ""
    text = ""
    with target("sqlite") as database:
        tested = hypothesis.seed(1)(machine(database))
        try:
            run_state_machine_as_test(tested, settings=profile(EXAMPLES, (Phase.generate,)))
        except Difference as difference:
            caught, text = difference.what, str(difference)
        except Exception as error:
            caught, text = type(error).__name__, str(error)
    report = {"caught": caught, "text": text[:2000], "examples": tested.first_difference}
    print(json.dumps(report))


def main(names: list[str]) -> int:
    unknown = set(names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        print(f"no mutant is called {', '.join(sorted(unknown))}")
        return 2
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    with tempfile.TemporaryDirectory() as directory:
        for mutant in chosen:  # all of them before the long work
            build(mutant, Path(directory) / mutant.name)
    baseline = trial(None)
    if baseline["caught"]:
        print(f"the unchanged backend differs from the model:\n{baseline['text']}")
        return 1
    print(f"unchanged: no difference in {EXAMPLES} histories, {baseline['seconds']:.1f} s")
    width = max(len(mutant.name) for mutant in chosen)
    print(f"{'mutant':{width}}  {'caught by':16} {'histories':>9} {'seconds':>8}")
    survived: list[str] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for mutant, report in zip(chosen, pool.map(trial, chosen), strict=True):
            caught = report["caught"] or "SURVIVED"
            print(
                f"{mutant.name:{width}}  {caught:16} {report['examples'] or EXAMPLES:9} "
                f"{report['seconds']:8.1f}",
                flush=True,
            )
            if not report["caught"]:
                survived.append(mutant.name)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutants caught")
    if survived:
        print(f"survived: {', '.join(survived)}")
    return 1 if survived else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--trial"]:
        run_trial()
    else:
        sys.exit(main(sys.argv[1:]))
