"""A worker that cannot reach the database though nothing says so (RELIABILITY F5, F11): it tells
its handlers before others may have their messages, and works again when the way is clear."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import fairturn
from tests import servers
from tests.faults.crew import LEASE, Crew, effects, fresh_url, make_effects, wait_until
from tests.faults.proxy import Hole, Proxy


@pytest.mark.parametrize("hole", ["lose", "hold"])
@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_black_hole(kind: str, hole: Hole, tmp_path: Path) -> None:
    url = fresh_url(kind, tmp_path)
    gate = tmp_path / "gate"
    types = {1: "long", 2: "long_async"}
    with (
        Proxy(servers.shared(kind)["port"]) as proxy,
        fairturn.connect(url) as db,
        Crew(url, tmp_path, {"queues": ["long"], "concurrency": 4, "grace": 5}) as crew,
    ):
        queue = db.queue("long")
        queue.create(lease=LEASE, max_attempts=0)
        cut_off = crew.start(proxy.url(url))
        for n, type in types.items():
            queue.send({"n": n, "gate": str(gate)}, type=type)
        wait_until(lambda: len(cut_off.running()) == 2, "it works on both")
        other = crew.start_ready(1)[0]
        opened = proxy.accepted
        proxy.open_hole(hole)
        wait_until(lambda: len(other.running()) == 2, "another worker has both")
        wait_until(lambda: crew.notes.numbers("told") == {1, 2}, "the handlers are told")
        told = {note.n: note.at for note in crew.notes.of("told")}
        early = {note.n: note.at - told[note.n] for note in other.starts()}
        print(f"{kind}, {hole}: told {early} s before the next start")
        gate.touch()
        wait_until(lambda: queue.stats().total == 0, "the other one has done both")
        if hole == "lose":
            # Those that hung are given up, and new ones are opened, which lead nowhere as well.
            wait_until(lambda: proxy.accepted > opened, "it tries to connect again")
        proxy.heal()
        healed = time.monotonic()
        assert other.stop() == 0
        queue.send({"n": 3, "gate": str(gate)}, type="long")
        wait_until(lambda: crew.notes.numbers("end") == {1, 2, 3}, "it works again")
        print(f"{kind}, {hole}: works {cut_off.starts()[-1].at - healed:.3f} s after healing")
        wait_until(lambda: queue.stats().total == 0, "and can ack")
        assert cut_off.stop() == 0


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_transactions_of_handlers_in_a_black_hole(kind: str, tmp_path: Path) -> None:
    """Threads that wait for an answer in the middle of their transaction: others do the work, once,
    and the threads come back."""
    url = fresh_url(kind, tmp_path)
    make_effects(url)
    gate = tmp_path / "gate"
    numbers = [1, 2]
    with (
        Proxy(servers.shared(kind)["port"]) as proxy,
        fairturn.connect(url) as db,
        Crew(url, tmp_path, {"queues": ["long"], "concurrency": 2, "grace": 5}) as crew,
    ):
        queue = db.queue("long")
        queue.create(lease=LEASE, max_attempts=0)
        cut_off = crew.start(proxy.url(url))
        for n in numbers:
            queue.send({"n": n, "gate": str(gate)}, type="gated_effect")
        wait_until(lambda: len(cut_off.running()) == 2, "it works on both")
        other = crew.start_ready(1)[0]
        proxy.open_hole("lose")
        gate.touch()  # both are about to commit
        wait_until(lambda: queue.stats().total == 0, "the other one has done both")
        proxy.heal()
        healed = time.monotonic()
        assert other.stop() == 0
        queue.send({"n": 3, "gate": str(gate)}, type="gated_effect")
        wait_until(lambda: cut_off.alive() and queue.stats().total == 0, "it works again")
        print(f"{kind}: works {cut_off.starts()[-1].at - healed:.3f} s after healing")
        assert cut_off.stop() == 0
    assert effects(url) == dict.fromkeys([*numbers, 3], 1)
