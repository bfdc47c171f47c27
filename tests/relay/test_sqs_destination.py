"""SqsDestination against real servers: what arrives, and what is said when it does not."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import get_session

import fairturn
from fairturn.core.sends import Send
from fairturn.relay.destination import DestinationError, Later, Never, Outcome, Parcel
from fairturn.relay.sqs import destination as module
from fairturn.relay.sqs.clients import client_for
from fairturn.relay.sqs.destination import SqsDestination, destination_for
from tests import servers
from tests.relay.sqs_servers import Answer, Proxy, Sqs, leased, refusal, store
from tests.server.serve_programs import serve

KIB = 1024


@pytest.fixture
def db(tmp_path: Path) -> Iterator[fairturn.Database]:
    with store(tmp_path) as db:
        yield db


def now() -> int:
    return time.time_ns() // 1_000


def handed(queue_url: str, *rounds: list[Parcel], **options: Any) -> list[list[Outcome]]:
    """Hand over, round by round, with a client of its own."""

    async def main() -> list[list[Outcome]]:
        client = client_for(queue_url)
        destination = SqsDestination(client, queue_url, own=True, **options)
        try:
            return [list(await destination.hand_over(parcels, now())) for parcels in rounds]
        finally:
            await destination.close()

    return asyncio.run(main())


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]


# --- what arrives --------------------------------------------------------------------------------


def test_bodies_and_attributes_arrive(sqs: Sqs, db: fairturn.Database) -> None:
    queue_url = sqs.queue()
    headers = {"colour": "red", "n": {"type": "Number.int", "value": "007"}, "hidden name": 1}
    parcels = leased(db, [Send({"a": [1, 2]}, headers=headers), "plain", b"\xff\x00"])
    assert handed(queue_url, parcels) == [[None] * 3]
    found = {message["Body"]: message for message in sqs.taken(queue_url)}
    assert set(found) == {'{"a":[1,2]}', "plain", "/wA="}
    assert found['{"a":[1,2]}']["MessageAttributes"] == {
        "colour": {"DataType": "String", "StringValue": "red"},
        "n": {"DataType": "Number.int", "StringValue": "007"},
    }


def test_the_rest_of_the_delay_goes_along(sqs: Sqs, db: fairturn.Database) -> None:
    queue_url = sqs.queue(DelaySeconds="600")
    soon, overdue, far = leased(db, ["soon", "overdue", "far"])
    soon = replace(soon, due_us=now() + 800 * 1_000_000)
    overdue = replace(overdue, due_us=now() - 86_400 * 1_000_000)
    far = replace(far, due_us=now() + 960 * 1_000_000)
    [[*done, late]] = handed(queue_url, [soon, overdue, far])
    assert done == [None, None]
    assert isinstance(late, Later)
    assert sqs.counts(queue_url) == (1, 1)
    assert bodies(sqs.taken(queue_url)) == ["overdue"]  # at once: the queue's own delay is not its


def test_many_messages_arrive_once_each(sqs: Sqs, db: fairturn.Database) -> None:
    queue_url = sqs.queue()
    parcels = leased(db, [f"n{n}" for n in range(80)])
    assert handed(queue_url, parcels) == [[None] * 80]
    assert sorted(bodies(sqs.taken(queue_url))) == sorted(f"n{n}" for n in range(80))


def test_an_oversize_batch_is_several(sqs: Sqs, db: fairturn.Database) -> None:
    queue_url = sqs.queue()
    sends = [str(n) * (300 * KIB) for n in range(9)]
    sends.insert(4, "x" * (1024 * KIB + 1))
    [outcomes] = handed(queue_url, leased(db, sends))
    assert isinstance(outcomes.pop(4), Never)
    assert outcomes == [None] * 9
    assert sorted(body[0] for body in bodies(sqs.taken(queue_url))) == [str(n) for n in range(9)]


def test_one_bad_entry_does_not_stop_the_others(sqs: Sqs, db: fairturn.Database) -> None:
    """Fairturn (as AWS) refuses the entry, moto the whole call."""
    queue_url = sqs.queue(MaximumMessageSize="1024")
    sends = [f"n{n}" for n in range(12)]
    sends[5] = "too large for this queue" * 100
    [outcomes] = handed(queue_url, leased(db, sends))
    bad = outcomes.pop(5)
    assert isinstance(bad, Never)
    assert "1024" in bad.reason
    assert outcomes == [None] * 11
    assert sorted(bodies(sqs.taken(queue_url))) == sorted(s for s in sends if len(s) < 100)


def test_a_fifo_queue_gets_nothing_twice(sqs: Sqs, db: fairturn.Database) -> None:
    queue_url = sqs.queue(".fifo")
    sends = [Send(f"{name}{n}", channel=name) for n in range(15) for name in ("a", "b", "a tenant")]
    sends += [Send("last", headers={"sqs:dedup": "same"}), Send("l", headers={"sqs:dedup": "same"})]
    parcels = sorted(leased(db, sends), key=lambda one: one.message.id)
    # The first try was not acked: the relay was killed, and another one does it again.
    assert handed(queue_url, parcels, parcels) == [[None] * 47] * 2
    found = sqs.taken(queue_url)
    assert len(found) == 46
    for name, group in (("a", "a"), ("b", "b"), ("a tenant", "a%20tenant")):
        came = [m["Body"] for m in found if m["Attributes"]["MessageGroupId"] == group]
        assert came == [f"{name}{n}" for n in range(15)]
    assert [m["Body"] for m in found if m["Attributes"]["MessageGroupId"] == "default"] == ["last"]


def test_a_channel_is_a_group_if_one_wants(ours: Sqs, db: fairturn.Database) -> None:
    queue_url = ours.queue()
    parcels = leased(db, [Send("x", channel="tenant-7")])
    assert handed(queue_url, parcels, groups=True) == [[None]]
    assert handed(queue_url, parcels) == [[None]]
    found = [m["Attributes"].get("MessageGroupId") for m in ours.taken(queue_url)]
    assert sorted(found, key=str) == [None, "tenant-7"]


def test_an_aiobotocore_client_is_awaited(sqs: Sqs, db: fairturn.Database) -> None:
    queue_url = sqs.queue()
    first, second = leased(db, range(50)), leased(db, range(50, 60))

    async def main() -> None:
        client = get_session().create_client("sqs", endpoint_url=sqs.address)
        async with client as given:
            destination = SqsDestination(given, queue_url)
            assert await destination.hand_over(first, now()) == [None] * 50
            before = threading.active_count()
            assert await destination.hand_over(second, now()) == [None] * 10
            assert threading.active_count() == before
            await destination.close()
            await given.list_queues()  # it is not the destination's to close

    asyncio.run(main())
    assert sorted(map(int, bodies(sqs.taken(queue_url)))) == list(range(60))


def test_nothing_to_hand_over_is_nothing(ours: Sqs) -> None:
    assert handed(ours.queue(), []) == [[]]


# --- what does not -------------------------------------------------------------------------------


@contextmanager
def spoiled(sqs: Sqs, spoil: Callable[[dict[str, Any]], Answer | None]) -> Iterator[Proxy]:
    with Proxy(sqs.address, spoil) as proxy:
        yield proxy


def test_a_throttled_queue_is_left_alone_for_a_while(ours: Sqs, db: fairturn.Database) -> None:
    queue_url = ours.queue()
    calls = iter(range(2))  # boto3 itself tries twice

    def spoil(asked: Any) -> Answer | None:
        return None if next(calls, None) is None else refusal("ThrottlingException")

    parcels = leased(db, ["a", "b"])
    with spoiled(ours, spoil) as proxy:
        first, second = handed(proxy.url(queue_url), parcels, parcels)
    assert all(isinstance(one, Later) and one.down and "throttling" in one.reason for one in first)
    assert second == [None, None]
    assert sorted(bodies(ours.taken(queue_url))) == ["a", "b"]


def test_some_throttled_batches_do_not_stop_the_others(ours: Sqs, db: fairturn.Database) -> None:
    queue_url = ours.queue()

    def spoil(asked: Any) -> Answer | None:
        slow = any(entry["MessageBody"] == "n3" for entry in asked["Entries"])
        return refusal("RequestThrottled", status=403) if slow else None

    with spoiled(ours, spoil) as proxy:
        [outcomes] = handed(proxy.url(queue_url), leased(db, [f"n{n}" for n in range(30)]))
    assert outcomes[10:] == [None] * 20
    assert all(isinstance(one, Later) and not one.down for one in outcomes[:10])
    assert len(ours.taken(queue_url)) == 20


def test_an_older_server_takes_smaller_batches(ours: Sqs, db: fairturn.Database) -> None:
    queue_url = ours.queue()
    refused: list[int] = []

    def spoil(asked: Any) -> Answer | None:
        size = sum(len(entry["MessageBody"]) for entry in asked["Entries"])
        if size <= 256 * KIB:
            return None
        refused.append(size)
        return refusal("BatchRequestTooLong")

    with spoiled(ours, spoil) as proxy:
        parcels = leased(db, ["x" * (100 * KIB)] * 8 + ["y" * (300 * KIB)])
        again = leased(db, ["z" * (100 * KIB)] * 8)
        first, second = handed(proxy.url(queue_url), parcels, again)
    assert first[:8] == [None] * 8
    assert isinstance(first[8], Never)
    assert second == [None] * 8
    assert sorted(refused) == [300 * KIB, 800 * KIB]  # and no more once it is known
    assert max(proxy.batches) == 2  # of 100 KiB each
    assert len(ours.taken(queue_url)) == 16


def test_in_a_fifo_queue_nothing_overtakes(ours: Sqs, db: fairturn.Database) -> None:
    queue_url = ours.queue(".fifo")

    def spoil(asked: Any) -> Answer | None:
        stuck = any(entry["MessageBody"] == "a3" for entry in asked["Entries"])
        return refusal("RequestThrottled", status=403) if stuck else None

    sends = [Send(f"{name}{n}", channel=name) for n in range(25) for name in ("a", "b")]
    parcels = sorted(leased(db, sends), key=lambda one: one.message.id)
    with spoiled(ours, spoil) as proxy:
        [outcomes] = handed(proxy.url(queue_url), parcels)
    for parcel, outcome in zip(parcels, outcomes, strict=True):
        if parcel.message.channel == "b":
            assert outcome is None
        else:
            assert isinstance(outcome, Later)
            assert not outcome.down
    assert bodies(ours.taken(queue_url)) == [f"b{n}" for n in range(25)]


def test_a_server_that_is_down(db: fairturn.Database, aws: None) -> None:
    queue_url = f"http://127.0.0.1:{servers.free_port()}/000000000000/orders"
    [outcomes] = handed(queue_url, leased(db, range(30)))
    assert all(isinstance(one, Later) and one.down for one in outcomes)
    assert isinstance(outcomes[0], Later)
    assert "cannot be reached" in outcomes[0].reason
    assert queue_url in outcomes[0].reason


def test_a_server_that_is_down_for_aiobotocore(db: fairturn.Database, aws: None) -> None:
    address = f"http://127.0.0.1:{servers.free_port()}"

    async def main() -> list[Outcome]:
        async with get_session().create_client("sqs", endpoint_url=address) as client:
            destination = SqsDestination(client, f"{address}/000000000000/orders")
            outcomes = list(await destination.hand_over(leased(db, range(30)), now()))
            await destination.close()
            return outcomes

    outcomes = asyncio.run(main())
    assert len(outcomes) == 30
    for outcome in outcomes:
        assert isinstance(outcome, Later)
        assert outcome.down
        assert "cannot be reached" in outcome.reason


def test_a_queue_that_does_not_exist(sqs: Sqs, db: fairturn.Database) -> None:
    queue_url = f"{sqs.address}/123456789012/nowhere"
    [[outcome]] = handed(queue_url, leased(db, ["x"]))
    assert isinstance(outcome, Later)
    assert outcome.down
    assert f"SQS queue {queue_url} does not exist. Create it there" in outcome.reason


def test_no_credentials(ours: Sqs, db: fairturn.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    [[outcome]] = handed(ours.queue(), leased(db, ["x"]))
    assert isinstance(outcome, Later)
    assert outcome.down
    assert "AWS_ACCESS_KEY_ID" in outcome.reason


def test_a_key_that_may_not_send(db: fairturn.Database, tmp_path: Path, aws: None) -> None:
    keys = {"FAIRTURN_KEY_X_ID": "AKIDX", "FAIRTURN_KEY_X_SECRET": "secret"}
    with serve(f"sqlite:///{tmp_path}/locked.db", environment=keys) as program:
        [[outcome]] = handed(f"{program.url}/000000000000/orders", leased(db, ["x"]))
    assert isinstance(outcome, Later)
    assert outcome.down
    assert "must allow sqs:SendMessage" in outcome.reason


def test_a_server_that_never_answers(
    ours: Sqs, db: fairturn.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WITHIN", 0.2)
    queue_url = ours.queue()
    answer = threading.Event()

    def spoil(asked: Any) -> Answer | None:
        stuck = any(entry["MessageBody"] == "0" for entry in asked["Entries"])
        assert not stuck or answer.wait(60)
        return None

    async def main(queue_url: str, parcels: list[Parcel]) -> list[Outcome]:
        destination = destination_for(f"sqs:{queue_url}")
        try:
            return list(await destination.hand_over(parcels, now()))
        finally:
            answer.set()
            await destination.close()

    with spoiled(ours, spoil) as proxy:
        parcels = leased(db, [str(n) for n in range(10)])
        outcomes = asyncio.run(main(proxy.url(queue_url), parcels))
    assert all(isinstance(one, Later) and one.down for one in outcomes)


def test_a_slow_server_is_not_asked_for_ever(
    ours: Sqs, db: fairturn.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEGIN", -1.0)
    queue_url = ours.queue()
    [outcomes] = handed(queue_url, leased(db, range(3)))
    assert all(isinstance(one, Later) and not one.down for one in outcomes)
    assert ours.counts(queue_url) == (0, 0)


@pytest.mark.parametrize("slow", [True, False])
def test_a_slow_server_gets_one_call_at_a_time(
    slow: bool, ours: Sqs, db: fairturn.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLOW", -1.0 if slow else 60.0)
    queue_url = ours.queue()
    busy: list[int] = []  # a token for each call on its way
    seen: list[int] = []
    two = threading.Event()

    def spoil(asked: Any) -> Answer | None:
        busy.append(0)
        seen.append(len(busy))
        if not slow and len(seen) > 1 and len(busy) == 1:
            assert two.wait(60)  # for another one beside it
        if len(busy) > 1:
            two.set()
        busy.pop()
        return None

    with spoiled(ours, spoil) as proxy:
        [outcomes] = handed(proxy.url(queue_url), leased(db, range(100)))
    assert outcomes == [None] * 100
    assert len(seen) == 10
    assert (max(seen) == 1) is slow


def test_a_server_that_is_down_is_asked_no_more(ours: Sqs, db: fairturn.Database) -> None:
    calls: list[Any] = []

    def spoil(asked: Any) -> Answer | None:
        calls.append(asked)
        return refusal("NonExistentQueue")

    with spoiled(ours, spoil) as proxy:
        [outcomes] = handed(proxy.url(ours.queue()), leased(db, range(80)))
    assert all(isinstance(one, Later) and one.down for one in outcomes)
    assert len(calls) == 1


def test_what_answers_is_no_sqs(ours: Sqs, db: fairturn.Database) -> None:
    with spoiled(ours, lambda asked: (502, {"html": "bad gateway"})) as proxy:
        [[outcome]] = handed(proxy.url(ours.queue()), leased(db, ["x"]))
    assert isinstance(outcome, Later)
    assert outcome.down
    assert "502" in outcome.reason


def test_an_answer_that_leaves_one_out(ours: Sqs, db: fairturn.Database) -> None:
    with spoiled(ours, lambda asked: (200, {"Successful": [], "Failed": []})) as proxy:
        [[outcome]] = handed(proxy.url(ours.queue()), leased(db, ["x"]))
    assert outcome == Later("the answer of SQS does not mention this message")


# --- clients and addresses -----------------------------------------------------------------------


def test_an_address_makes_a_destination(ours: Sqs, db: fairturn.Database) -> None:
    queue_url = ours.queue()

    async def main() -> None:
        destination = destination_for(f"sqs:{queue_url}?region=eu-north-1&groups=1")
        assert destination.shown == f"sqs:{queue_url}"
        assert (destination.ahead, destination.most) == (899.0, 10)
        parcels = leased(db, [Send(json.dumps("x"), channel="c")])
        assert await destination.hand_over(parcels, now()) == [None]
        await destination.close()

    asyncio.run(main())
    [found] = ours.taken(queue_url)
    assert found["Attributes"]["MessageGroupId"] == "c"


def test_a_fifo_destination_gives_nothing_early(aws: None) -> None:
    async def main() -> None:
        destination = destination_for("sqs:https://sqs.eu-west-1.amazonaws.com/1/orders.fifo")
        assert destination.ahead == 0
        await destination.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("queue_url", "given", "region", "endpoint"),
    [
        (
            "https://sqs.eu-west-1.amazonaws.com/1/q",
            *("us-west-2", "eu-west-1", "https://sqs.eu-west-1.amazonaws.com"),
        ),
        ("http://127.0.0.1:9324/1/q", "us-west-2", "us-west-2", "http://127.0.0.1:9324"),
        ("http://127.0.0.1:9324/1/q", None, "us-east-1", "http://127.0.0.1:9324"),
        (
            "https://sqs.amazonaws.com/1/q",
            *("eu-west-3", "eu-west-3", "https://sqs.eu-west-3.amazonaws.com"),
        ),
    ],
)
def test_where_a_client_asks(
    queue_url: str, given: str | None, region: str, endpoint: str, aws: None
) -> None:
    client = client_for(queue_url, given)
    assert client.meta.region_name == region
    assert client.meta.endpoint_url == endpoint
    config = client.meta.config
    assert (
        config.retries["total_max_attempts"] * (config.connect_timeout + config.read_timeout) <= 30
    )
    client.close()


def test_a_region_that_nobody_knows(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.delenv("AWS_REGION", raising=False)
    with pytest.raises(DestinationError, match="AWS_DEFAULT_REGION"):
        client_for("https://sqs.amazonaws.com/1/q")
    client = client_for("http://127.0.0.1:9324/1/q")
    assert client.meta.region_name == "us-east-1"
    client.close()


def test_without_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    with pytest.raises(DestinationError, match="pip install boto3"):
        destination_for("sqs:https://sqs.eu-west-1.amazonaws.com/1/q")
