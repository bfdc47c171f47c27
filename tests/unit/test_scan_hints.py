"""Where a consumer of PostgreSQL reads on."""

from __future__ import annotations

import time

import psycopg
import pytest

import fairturn
from fairturn import Policy
from fairturn.backends.base import Receive
from fairturn.backends.postgres import scan_hints
from fairturn.backends.postgres.scan_hints import Hint, Hints
from fairturn.core.rows import MessageRow
from fairturn.drivers.psycopg import PsycopgDriver
from tests import servers

NOW = 1_900_000_000_000_000
HOUR = 3_600_000_000


def row(id: int, channel: str, due_at: int) -> MessageRow:
    rest = dict.fromkeys(MessageRow._fields, 0)
    return MessageRow(**{**rest, "id": id, "channel": channel, "due_at": due_at})


def hints() -> Hints:
    """Of a consumer that has just received at NOW, past many dead entries."""
    found = Hints()
    found.took(time.monotonic(), True, True, NOW, 1_000_000, 1)
    return found


def test_it_reads_on_behind_what_was_given() -> None:
    found = hints()
    found.given([row(1, "c", NOW - 9), row(2, "c", NOW - 5)], [], 0)
    assert found.near(None, 1, False) == [("c", 0, NOW - 5, 2)]


def test_a_promoted_message_does_not_lead_it_past_what_is_due() -> None:
    found = hints()
    found.given([row(1, "c", NOW + HOUR), row(2, "d", NOW - 5)], [], 0)
    found.took(time.monotonic(), False, False, 0, 0, 1)  # a short way tells no time
    found.given([row(3, "c", NOW + HOUR)], [], 0)
    [(_, _, due, id), other] = found.near(None, 9, False)
    assert id == 3
    assert NOW <= due < NOW + HOUR
    assert other == ("d", 0, NOW - 5, 2)


def test_one_slow_look_does_not_put_off_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are spread where they are dear, not where the machine was busy once."""
    clock = 1000.0
    monkeypatch.setattr(scan_hints.time, "monotonic", lambda: clock)
    found = hints()

    def wait_for_look(seconds: float) -> float:
        """It looks, which takes so long; how long until it would again?"""
        nonlocal clock
        started, clock = clock, clock + seconds
        found.took(started, True, True, NOW, 0, 1)
        before = clock
        while not found.look_due():
            clock += 0.01
        return clock - before

    found.took(clock - 0.001, False, False, 0, 0, 1)
    assert wait_for_look(0.2) < 0.12
    assert wait_for_look(0.001) < 0.12
    assert wait_for_look(0.2) < 0.12
    assert 9 < wait_for_look(0.2) < 11
    assert 9 < wait_for_look(0.3) < 11


@pytest.mark.server
def test_what_was_recovered_is_seen_by_all_who_share_a_memory() -> None:
    """One of two receives recovers; the other, under way meanwhile, has read on behind that."""
    url = servers.postgres_url()
    with (
        fairturn.connect(url, pool_size=1) as db,
        psycopg.connect(url, autocommit=True) as raw,
    ):
        db.migrate()
        queue = db.queue("recovered_before_hints")
        queue.create()
        sent = [queue.send(n).id for n in range(10)]
        crashed = {message.id for message in queue.receive(3, lease=1e-6)}
        backend, kept = db.target.backend, db._core.consumer(queue.name)
        kept.extra = shared = Hints()
        shared._next_look = shared._next_sweep = shared._useful_until = float("inf")
        driver = PsycopgDriver(raw)
        other = backend.receive(queue.name, Receive(1), kept, None)
        text, params = next(other)
        rows = driver.execute(text, params)
        shared._next_sweep = 0.0
        [first] = queue.receive()
        with pytest.raises(StopIteration) as end:
            other.send(rows)
        [behind] = end.value.value.rows
        rest = {message.id for message in queue.receive(2)}
    assert behind[0] not in crashed
    assert {first.id} | rest == crashed
    assert crashed < set(sent)


@pytest.mark.server
def test_the_hints_of_others_stay_theirs_if_the_channel_in_its_turn_is_closed() -> None:
    """Each channel was read on from where the one before it in the round had been left."""
    url = servers.postgres_url()
    with fairturn.connect(url) as db, psycopg.connect(url, autocommit=True) as raw:
        db.migrate()
        queue = db.queue("closed_in_its_turn")
        queue.create(policy=Policy(weight=3))
        sent = {name: queue.send(name, channel=name).id for name in ("a", "c", "b")}
        sent["b2"] = queue.send("b2", channel="b").id
        queue.channel("a").set_policy(weight=3, paused=True)
        at = dict(raw.execute("SELECT id, due_at FROM fairturn.message").fetchall())
        start = Hint("c")
        rows = raw.execute(
            "SELECT id FROM fairturn.receive_rows(p_queue => %s, p_n => 10, p_lease => 1000000, "
            "p_version => NULL, p_types => NULL, p_min_priority => NULL, p_max_bytes => NULL, "
            "p_permit => NULL, p_ack_ids => '{}', p_ack_tokens => '{}', p_channel => 'a', "
            "p_credit => 2, p_versions => '{0}', p_hint_channels => '{b,c}', p_hint_ranks => %s, "
            "p_hint_dues => %s, p_hint_ids => %s, p_floors => '{}', p_server => 0, "
            "p_sweep => false, p_lease_floor => 0, p_due_floor => 0, p_own => true, p_token => 1, "
            "p_now => NULL)",
            (queue.name, [0, start.rank], [at[sent["b"]], start.due], [sent["b"], start.id]),
        ).fetchall()
    # Of b what lies behind its hint, of c everything.
    assert {id for (id,) in rows} - {None} == {sent["b2"], sent["c"]}
