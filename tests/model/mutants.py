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
from pathlib import Path
from typing import Any

from tests.model.mutations import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
EXAMPLES = int(os.environ.get("FAIRTURN_MUTANT_EXAMPLES", "400"))
AT_ONCE = int(os.environ.get("FAIRTURN_MUTANT_JOBS", "2"))


def build(mutant: Mutant | None, directory: Path) -> None:
    """A copy of the package with the mutation in it."""
    shutil.copytree(
        ROOT / "src" / "fairturn",
        directory / "fairturn",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    if mutant is not None:
        path = directory / "fairturn" / "backends" / "sqlite" / mutant.file
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

    import fairturn
    from tests.model.backends import target
    from tests.model.machine import machine
    from tests.model.pair import Difference
    from tests.model.profile import profile

    assert Path(fairturn.__file__).parents[1] == Path.cwd(), "not the copy was imported"
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
