"""Eight receivers at once, on two servers of one database: nobody gets what another holds, groups
keep their order whatever their receivers do, and one tenant's flood delays nobody else.

`make test` runs small forms; `make faults` with FAIRTURN_FAULTS=1000 the 100,000 messages.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.faults.crew import FULL, ROUNDS, fresh_url
from tests.faults.sqs_crew import KINDS, Client, Refused, Server, together
from tests.faults.sqs_history import Delivery, History

RECEIVERS = 8
MESSAGES = ROUNDS * 100 if FULL else 2_000
GROUPS = 6
IN_ORDER = ROUNDS if FULL else 30  # messages of each group
FLOOD = 10_000
pytestmark = pytest.mark.timeout(max(300, ROUNDS * 2))


class Pair:
    """Two servers, and clients of them by turns."""

    def __init__(self, *servers: Server) -> None:
        self._ports = itertools.cycle([one.port for one in servers])

    def client(self) -> Client:
        return Client(next(self._ports))


@pytest.fixture(scope="module", params=KINDS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    url = fresh_url(request.param, tmp_path_factory.mktemp("receivers"))
    with Server(url) as one, Server(url) as other:
        yield Pair(one, other)


async def send(pair: Pair, queue: str, bodies: list[str], **more: str) -> None:
    """In batches of ten, one after the other."""
    async with pair.client() as client:
        for start in range(0, len(bodies), 10):
            some = enumerate(bodies[start : start + 10])
            entries = [{"Id": str(n), "MessageBody": body, **more} for n, body in some]
            answer = await client.ask("SendMessageBatch", queue, Entries=entries)
            assert len(answer["Successful"]) == len(entries)


async def receive(
    client: Client, queue: str, history: History, n: int, wait: int
) -> list[Delivery]:
    asked = history.asks()
    answer = await client.ask(
        "ReceiveMessage",
        queue,
        MaxNumberOfMessages=n,
        WaitTimeSeconds=wait,
        AttributeNames=["ApproximateReceiveCount"],
    )
    return history.gets(asked, answer)


# --- nobody gets what another holds ---------------------------------------------------------------
async def share(pair: Pair, history: History) -> None:
    hours = {"VisibilityTimeout": "43200"}
    seen: set[str] = set()

    async def consume(deletes: bool) -> None:
        async with pair.client() as client:
            while len(seen) < MESSAGES:
                found = await receive(client, "shared", history, 10, 1)
                seen.update(one.body for one in found)
                if found and deletes:
                    entries = [
                        {"Id": str(n), "ReceiptHandle": one.handle} for n, one in enumerate(found)
                    ]
                    answer = await client.ask("DeleteMessageBatch", "shared", Entries=entries)
                    assert len(answer["Successful"]) == len(entries)

    async with pair.client() as client:
        await client.ask("CreateQueue", QueueName="shared", Attributes=hours)
    senders = [[f"s{s} {n}" for n in range(s, MESSAGES, 4)] for s in range(4)]
    await together(
        *(send(pair, "shared", bodies) for bodies in senders),
        *(consume(n % 2 == 0) for n in range(RECEIVERS)),
    )
    async with pair.client() as client:
        assert await receive(client, "shared", history, 10, 0) == []


def test_no_message_is_received_twice_inside_its_visibility_time(pair: Pair) -> None:
    history = History()
    asyncio.run(share(pair, history))
    times = Counter(one.body for one in history.deliveries())
    print(f"{len(times)} messages in {len(history.receipts)} answers to {RECEIVERS} receivers")
    assert [body for body, count in times.items() if count > 1] == []
    assert len(times) == MESSAGES


# --- groups keep their order ----------------------------------------------------------------------
class Careless:
    """Receivers that forget messages, give them up, or delete them too late."""

    VISIBILITY = 1

    def __init__(self, pair: Pair, rng: random.Random) -> None:
        self.pair, self.rng = pair, rng
        self.history = History()
        self.done: Counter[str] = Counter()

    async def consume(self) -> None:
        async with self.pair.client() as client:
            while len(self.history.deleted) < GROUPS * IN_ORDER:
                n = self.rng.randint(1, 10)
                for one in await receive(client, "careless.fifo", self.history, n, 1):
                    [how] = self.rng.choices(["delete", "late", "yield", "forget"], [16, 1, 2, 1])
                    self.done[how] += 1
                    if how == "forget":
                        break  # this one and the rest
                    await self.treat(client, one, how)

    async def treat(self, client: Client, one: Delivery, how: str) -> None:
        if how == "late":
            await asyncio.sleep(self.VISIBILITY * self.rng.uniform(0.9, 1.2))
        try:
            if how == "yield":
                self.history.yields(one)
                await client.ask(
                    "ChangeMessageVisibility",
                    "careless.fifo",
                    ReceiptHandle=one.handle,
                    VisibilityTimeout=0,
                )
            else:
                self.history.deletes(one)
                await client.ask("DeleteMessage", "careless.fifo", ReceiptHandle=one.handle)
                self.history.has_deleted(one)
        except Refused as refused:
            if how != "yield" and not refused.is_late:
                raise
            if how != "yield":
                self.history.has_not_deleted(one)

    async def run(self) -> None:
        attributes = {
            "FifoQueue": "true",
            "ContentBasedDeduplication": "true",
            "VisibilityTimeout": str(self.VISIBILITY),
        }
        async with self.pair.client() as client:
            await client.ask("CreateQueue", QueueName="careless.fifo", Attributes=attributes)
        bodies = {f"g{g}": [f"g{g} {n}" for n in range(IN_ORDER)] for g in range(GROUPS)}
        await together(
            *(
                send(self.pair, "careless.fifo", some, MessageGroupId=group)
                for group, some in bodies.items()
            ),
            *(self.consume() for _ in range(RECEIVERS)),
        )


def test_groups_keep_their_order_whatever_their_receivers_do(
    pair: Pair, rng: random.Random
) -> None:
    careless = Careless(pair, rng)
    asyncio.run(careless.run())
    history = careless.history
    print(
        f"{len(history.deleted)} messages, {sum(1 for _ in history.deliveries())} deliveries, "
        f"{dict(careless.done)}, {history.refused} deletes refused"
    )
    assert len(history.bodies()) == len(history.deleted) == GROUPS * IN_ORDER
    assert careless.done["forget"]
    assert careless.done["yield"]
    history.check_ids()
    history.check_order()
    history.check_deleted()
    history.check_visibility(careless.VISIBILITY)


# --- fair queues ----------------------------------------------------------------------------------
QUIET = ["ann", "bob", "cid"]


async def flood(pair: Pair) -> list[str]:
    """The tenants in the order in which their messages are received."""
    async with pair.client() as client:
        await client.ask("CreateQueue", QueueName="fair")
        some = [[f"flood {n}" for n in range(s, FLOOD, 4)] for s in range(4)]
        await together(*(send(pair, "fair", bodies, MessageGroupId="flood") for bodies in some))
        for tenant in QUIET:
            await send(pair, "fair", [f"{tenant} {n}" for n in range(5)], MessageGroupId=tenant)
        order: list[str] = []
        while sum(tenant != "flood" for tenant in order) < 15:
            answer = await client.ask("ReceiveMessage", "fair", MaxNumberOfMessages=10)
            order += [one["Body"].split()[0] for one in answer["Messages"]]
            assert len(order) < FLOOD
        return order


def test_a_flood_does_not_delay_other_tenants(pair: Pair) -> None:
    order = asyncio.run(flood(pair))
    places = {tenant: [n for n, one in enumerate(order, 1) if one == tenant] for tenant in QUIET}
    print(f"behind a flood of {FLOOD}: {places}")
    for found in places.values():
        for n, place in enumerate(found, 1):
            # A turn each of four tenants; the two servers keep turns of their own.
            assert place <= n * (len(QUIET) + 1) * 2, places
