"""`make bench`: one table per backend, each case beside the raw floor of the same run.

python -m bench [sqlite] [postgresql] [mysql] [--scale 0.1]
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import tempfile
from pathlib import Path

import fairturn
from bench import cases, locked_channel
from bench.measure import Table
from tests import servers


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("backends", nargs="*", default=["sqlite", "postgresql", "mysql"])
    parser.add_argument(
        "--scale", type=float, default=1.0, help="1: full size; 0.05: a quick check"
    )
    options = parser.parse_args()
    print(
        f"Fairturn {fairturn.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}; 200-byte bodies; compare ratios: the machine may be shared."
    )
    for backend in options.backends:
        globals()[f"_{backend}"](options.scale)


def _sqlite(scale: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        db = fairturn.connect(f"sqlite:///{Path(folder) / 'bench.db'}")
        cases.run(db, Table(f"SQLite {sqlite3.sqlite_version}, WAL, synchronous=FULL"), scale)
        db.close()


def _postgresql(scale: float) -> None:
    settings = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
    with servers.Postgres(settings=settings) as server:
        db = fairturn.connect(server.create_database("bench"), pool_size=16)
        db.migrate()
        locked_channel.install(db)
        cases.run(db, Table("PostgreSQL, fsync on"), scale)
        db.close()


def _mysql(scale: float) -> None:
    with servers.Mysql() as server:
        db = fairturn.connect(server.create_database("bench"), pool_size=16)
        db.migrate()
        cases.run(db, Table("MariaDB, innodb_flush_log_at_trx_commit = 1"), scale)
        db.close()


if __name__ == "__main__":
    main()
