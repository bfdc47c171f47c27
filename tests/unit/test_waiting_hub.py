"""The hub behind wait(): nobody hangs, whatever happens to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import fairturn
from fairturn.execution.sync import wait_hub
from fairturn.execution.sync.waker import Ticket
from tests import servers


@pytest.fixture
def db(tmp_path: Path) -> fairturn.Database:
    return fairturn.connect(f"sqlite:///{tmp_path / 'hub.db'}")


def background(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def test_closing_ends_the_waits(db: fairturn.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = db.queue("q")
    queue.create()
    id = queue.send(1)
    slept = threading.Event()
    stay = Ticket.stay
    monkeypatch.setattr(Ticket, "stay", lambda self: (stay(self), slept.set())[0])
    thread, errors = background(lambda: queue.wait(id=id))
    slept.wait()
    db.close()
    thread.join()
    assert [type(error) for error in errors] == [fairturn.DatabaseUnavailable]


def test_what_goes_wrong_while_sleeping_is_told(
    db: fairturn.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue("q")
    queue.create()
    id = queue.send(1)

    def fails(self: Ticket) -> None:
        raise PermissionError("not allowed to sleep here")

    monkeypatch.setattr(Ticket, "stay", fails)
    with pytest.raises(PermissionError):
        queue.wait(id=id)
    monkeypatch.undo()
    [message] = queue.receive()
    message.complete({"all": "well"})
    assert queue.wait(id=id).result == {"all": "well"}
    db.close()


@pytest.mark.parametrize("backend", ["sqlite", "postgresql", "mysql"])
def test_a_thousand_waiters_on_one_connection(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = {
        "sqlite": lambda: f"sqlite:///{tmp_path / 'thousand.db'}",
        "postgresql": lambda: servers.postgres_url("hub"),
        "mysql": lambda: servers.mysql_url("hub"),
    }[backend]()
    with fairturn.connect(url, pool_size=1) as db:
        db.migrate()
        queue = db.queue("thousand")
        queue.create()
        ids = queue.send_many(list(range(1000)))
        looks: list[int] = []
        outcomes = wait_hub.outcomes
        monkeypatch.setattr(
            wait_hub,
            "outcomes",
            lambda core, name, waits: looks.append(len(waits)) or outcomes(core, name, waits),
        )
        found: dict[int, object] = {}

        def wait(id: int) -> None:
            found[id] = queue.wait(id=id, timeout=60).result

        threads = [threading.Thread(target=wait, args=[id]) for id in ids]
        for thread in threads:
            thread.start()
        while messages := queue.receive(100):
            queue.complete(messages, "ready")
        for thread in threads:
            thread.join()
        assert found == dict.fromkeys(ids, "ready")
        assert max(looks) > 1, "everybody looked alone"
