"""One worker process of each queue runs handlers that do nothing, on the same PostgreSQL, in turns.

python -m bench.workers [--messages 20000] [--only fairturn,pgqueuer,…] [--rounds 3] [--cap 30]
"""

from __future__ import annotations

import argparse
import os
import platform
import sys

import psycopg

from bench.workers import entries, running, table
from bench.workers.install import Missing
from tests import servers

SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}  # fsync stays on


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.workers")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--only", help=f"some of {','.join(entries.NAMES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--cap", type=float, default=30.0, help="seconds after which a run is stopped"
    )
    options = parser.parse_args()
    names = set(options.only.split(",")) if options.only else set(entries.NAMES)
    if unknown := names - set(entries.NAMES):
        parser.error(f"--only knows {', '.join(entries.NAMES)}, not {', '.join(sorted(unknown))}")
    if options.messages < 1 or options.rounds < 1 or options.cap <= 0:
        parser.error("--messages, --rounds and --cap must be above 0")
    commands = entries.commands(names)
    results: table.Results = {entry: [] for entry in commands}
    loads = [os.getloadavg()[0]]
    server = servers.Postgres(settings=SETTINGS)
    with server:
        with psycopg.connect(server.url("postgres")) as connection:
            version = connection.info.server_version // 10000
        for turn in range(options.rounds):
            for entry, command in commands.items():
                if isinstance(command, Missing):
                    continue
                outcome = running.run(server, entry, command, options.messages, options.cap)
                results[entry].append(outcome)
                _progress(turn, entry, outcome)
            loads.append(os.getloadavg()[0])
    print(
        f"PostgreSQL {version}, fsync on; Python {platform.python_version()}; {os.cpu_count()} cores, "
        f"shared by clients and server; medians of {options.rounds}; load before the run {loads[0]:.1f}, "
        f"after its rounds {', '.join(f'{load:.1f}' for load in loads[1:])}.\n"
    )
    print(table.markdown(commands, results, options.messages))
    print(f"\n† stopped after {options.cap:.0f} s; the rate counts the messages handled by then.")


def _progress(turn: int, entry: entries.Entry, outcome: running.Outcome | str) -> None:
    said = outcome if isinstance(outcome, str) else f"{outcome.rate:,.0f}/s"
    print(f"round {turn + 1}: {entry.shown}, {entry.workload}: {said}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
