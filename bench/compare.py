"""`make bench-compare OLD=REF`: this tree beside an older commit, in turns, in one run.

Both trees run the same cases, each on its own database of the same server. They take turns: a short
slice of the old tree, a short slice of the new one, then in the other order. The figures are medians
of these slices. Other programs on the machine change the speed, but hardly the CPU time.
Two processes of the same tree can differ by a tenth for as long as they live: by where their memory
lies. Both are therefore started several times, on new databases.
The databases are in memory where that is possible, so that no disk hides a difference.

    python -m bench.compare REF                                     all, at most 10 minutes
    python -m bench.compare REF --rounds 3 --cases send_one tasks   a short run
    python -m bench.compare REF --new REF                           the noise: how far two equal trees differ
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.compare_client import CASES
from tests import servers

ROOT = Path(__file__).parent.parent
BACKENDS = ("sqlite", "postgresql", "mysql")
FEWEST = 2  # rounds of a case in each start, even if the time is over
Slice = tuple[float, float]  # messages per second, CPU microseconds per message
HEAD = (
    "| database | case | old: messages/s | new: messages/s | speed, new/old "
    "| old: CPU µs per message | new: CPU µs per message | CPU, new/old |\n"
    "|---|---|--:|--:|--:|--:|--:|--:|"
)


class Side:
    """One tree, measured in its own process."""

    def __init__(self, tree: Path, url: str, server: int) -> None:
        [package] = tree.glob("src/*/py.typed")
        command = [sys.executable, "-m", "bench.compare_client", package.parent.name, url]
        self.process = subprocess.Popen(
            [*command, str(servers.free_port()), str(server)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        imported = self._answer()
        if Path(imported).resolve() != package.parent.resolve():
            raise SystemExit(f"the client imported {imported} instead of {package.parent}")

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a client ended early: its error is above")
        return line.strip()

    def measure(self, case: str, seconds: float) -> Slice:
        """Messages per second and CPU microseconds per message."""
        assert self.process.stdin is not None
        print(case, seconds, file=self.process.stdin, flush=True)
        speed, cost = map(float, self._answer().split())
        return speed, cost

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def checkout(ref: str) -> Iterator[Path]:
    """The tree of a commit, for as long as the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "old"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), ref], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


@contextlib.contextmanager
def databases(backend: str) -> Iterator[tuple[str, str, int]]:
    """The URLs of two empty databases of one private server, and its process id (SQLite: 0)."""
    if backend == "sqlite":
        with tempfile.TemporaryDirectory(dir=servers.memory_disk()) as folder:
            yield f"sqlite:///{folder}/old.db", f"sqlite:///{folder}/new.db", 0
        return
    make = {"postgresql": servers.Postgres, "mysql": servers.Mysql}[backend]
    with make(durable=False) as server:
        yield server.create_database("old"), server.create_database("new"), server.pid


def compare(backend: str, trees: Sequence[Path], options: argparse.Namespace) -> None:
    """Print a row for each case."""
    begun = time.monotonic()
    found: dict[str, list[tuple[Slice, Slice]]] = {case: [] for case in options.cases}
    share = options.minutes * 60 / len(options.backends) / options.starts
    for start in range(options.starts):
        with databases(backend) as (first, second, server):
            first, second = (second, first) if start % 2 else (first, second)
            old, new = Side(trees[0], first, server), Side(trees[1], second, server)
            for number, case in enumerate(options.cases, 1):
                until = begun + share * (start + number / len(options.cases))
                for turn in range(options.rounds):
                    if turn >= FEWEST and time.monotonic() > until:
                        break
                    if turn % 2:
                        of_old = old.measure(case, options.seconds)
                        found[case].append((of_old, new.measure(case, options.seconds)))
                    else:
                        of_new = new.measure(case, options.seconds)
                        found[case].append((old.measure(case, options.seconds), of_new))
            old.close()
            new.close()
        print(f"{backend}: start {start + 1} of {options.starts} done", file=sys.stderr)
    ratios: list[Slice] = []
    for case, slices in found.items():
        (old_speed, old_cost), (new_speed, new_cost) = map(medians, zip(*slices, strict=True))
        ratios.append((new_speed / old_speed, new_cost / old_cost))
        row(
            *(backend, case, f"{old_speed:,.0f}", f"{new_speed:,.0f}", ratios[-1][0]),
            *(f"{old_cost:,.1f}", f"{new_cost:,.1f}", ratios[-1][1]),
        )
    speed, cost = map(statistics.geometric_mean, zip(*ratios, strict=True))
    row(backend, "**all** (geometric mean)", "", "", speed, "", "", cost)


def medians(slices: Iterable[Slice]) -> Slice:
    speeds, costs = zip(*slices, strict=True)
    return statistics.median(speeds), statistics.median(costs)


def row(*cells: str | float) -> None:
    shown = (f"{cell:.1%}" if isinstance(cell, float) else cell for cell in cells)
    print(f"| {' | '.join(shown)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.compare")
    parser.add_argument("ref", help="the older commit")
    parser.add_argument("--new", metavar="REF", help="a commit to measure instead of this tree")
    parser.add_argument("--rounds", type=int, default=4, help="slices in each start, at most")
    parser.add_argument("--starts", type=int, default=5, help="of both processes, anew")
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a slice")
    parser.add_argument("--minutes", type=float, default=9.0, help="of the whole run, about")
    parser.add_argument("--backends", nargs="*", default=BACKENDS, choices=BACKENDS)
    parser.add_argument("--cases", nargs="*", default=CASES, choices=CASES)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before the run {os.getloadavg()[0]:.1f}\n\n{HEAD}")
    newer = checkout(options.new) if options.new else contextlib.nullcontext(ROOT)
    with checkout(options.ref) as old, newer as new:
        for backend in options.backends:
            compare(backend, (old, new), options)


if __name__ == "__main__":
    main()
