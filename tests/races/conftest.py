"""One laboratory per database and session: three connections and their threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.races.databases import Mysql, Postgres, Sqlite
from tests.races.explore import Lab, played

SERVERS = ("postgresql", "mysql")
ALL = ("sqlite", *SERVERS)


class Labs:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[str, Lab] = {}

    def lab(self, name: str) -> Lab:
        if name not in self._open:
            self._open[name] = self._new(name)
        return self._open[name]

    def _new(self, name: str) -> Lab:
        if name == "postgresql":
            return Lab(Postgres())
        if name == "mysql":
            return Lab(Mysql())
        return Lab(Sqlite(self._directory))

    def close(self) -> None:
        for lab in self._open.values():
            lab.close()


@pytest.fixture(scope="session")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    labs = Labs(tmp_path_factory.mktemp("races"))
    yield labs
    labs.close()


@pytest.fixture
def session_things(request: pytest.FixtureRequest, labs: Labs) -> None:
    """tests/conftest.py asks for this before it counts what there is."""
    params = request.node.callspec.params
    labs.lab(params.get("lab") or params["server"])


@pytest.fixture(params=ALL)
def lab(request: pytest.FixtureRequest, labs: Labs, session_things: None) -> Lab:
    """Two rivals on any database."""
    return labs.lab(request.param)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, labs: Labs, session_things: None) -> Lab:
    """Two rivals on a server, where functions have stop points."""
    return labs.lab(request.param)


@pytest.fixture(autouse=True)
def counted(request: pytest.FixtureRequest) -> Iterator[None]:
    """The schedules of each test travel in its report, from the workers of ``pytest -n`` too."""
    played.clear()
    yield
    request.node.user_properties += [("schedules", pair) for pair in played.items()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    totals: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "teardown":
                continue
            for name, pair in getattr(report, "user_properties", ()):
                if name == "schedules":
                    totals[pair[0]] += pair[1]
    if totals:
        terminalreporter.write_sep("-", "races")
        for title, count in sorted(totals.items()):
            terminalreporter.write_line(f"{count:6}  {title}")
        terminalreporter.write_line(f"{sum(totals.values()):6}  schedules in all")
