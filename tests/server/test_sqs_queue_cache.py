"""What a server knows of its queues: those of the library, those that other processes change."""

from __future__ import annotations

import asyncio
import json

import pytest

from fairturn.server.sqs import queue_cache
from fairturn.server.sqs.service import ACTION_FUNCTIONS
from fairturn.server.sqs.wire.action_table import ACTIONS
from tests.conformance.door import unique
from tests.server.sqs_bench import ACCOUNT, HOST, Bench, arn_of, name_of

MISSING = "AWS.SimpleQueueService.NonExistentQueue"


# --- queues of the library, other processes ---------------------------------------------------


async def test_a_queue_of_the_library_is_shown_with_defaults_and_its_settings(
    bench: Bench,
) -> None:
    name = unique()
    bench.made |= {name, f"{name}-dead", f"{name}.x"}
    dead = bench.sqs.db.queue(f"{name}-dead")
    await dead.create()
    await bench.sqs.db.queue(name).create(
        lease=4.5, dead_letter=dead.name, max_attempts=7, max_body=2_000, meta={"mine": 1}
    )
    url = f"{HOST}/{ACCOUNT}/{name}"
    found = await bench.attributes(url)
    assert found["VisibilityTimeout"] == "5"
    assert found["MessageRetentionPeriod"] == "1209600"  # it keeps for ever; the most SQS can say
    assert found["MaximumMessageSize"] == "2000"
    assert json.loads(found["RedrivePolicy"]) == {
        "deadLetterTargetArn": f"{arn_of(url)}-dead",
        "maxReceiveCount": 7,
    }
    await bench("TagQueue", QueueUrl=url, Tags={"a": "b"})
    settings = await bench.core(url).settings()
    assert settings.meta["mine"] == 1
    assert (settings.lease, settings.max_attempts) == (4.5, 7)
    assert await bench.queue(name=name) == url
    # Names that SQS cannot have can be reached, but are not listed.
    await bench.sqs.db.queue(f"{name}.x").create()
    assert "QueueArn" in await bench.attributes(f"{url}.x")
    listed = await bench("ListQueues", QueueNamePrefix=name)
    assert listed["QueueUrls"] == [url, f"{url}-dead"]


async def test_a_redrive_policy_that_the_library_changed_is_shown_as_it_is_now(
    bench: Bench,
) -> None:
    url, dead = await bench.dead_letters()
    await bench.core(url).set(max_attempts=9)
    [text] = (await bench.attributes(url, "RedrivePolicy")).values()
    assert json.loads(text) == {"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": 9}
    await bench.core(url).set(dead_letter=None)
    assert await bench.attributes(url, "RedrivePolicy") == {}


async def test_what_is_known_is_kept_for_a_second_and_dropped_by_writes_of_this_process(
    bench: Bench,
) -> None:
    now = 100.0
    bench.sqs.queue_cache = queue_cache.QueueCache(bench.sqs.db, bench.sqs.options, lambda: now)
    url = await bench.queue()
    name = name_of(url)
    known = await bench.sqs.queue_cache.cached(name)
    assert await bench.sqs.queue_cache.cached(name) is known
    await bench.set(url, DelaySeconds="4", VisibilityTimeout="6")
    changed = await bench.sqs.queue_cache.cached(name)
    assert (changed.delay, changed.lease) == (4, 6)
    # Another process changes it: seen after a second.
    await bench.another().answer(
        bench.ask("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "8"})
    )
    assert (await bench.sqs.queue_cache.cached(name)).delay == 4
    now += 1
    assert (await bench.sqs.queue_cache.cached(name)).delay == 8
    # Another process drops it: an action that meets that says so, and it is forgotten.
    await bench.another().answer(bench.ask("DeleteQueue", QueueUrl=url))
    assert (await bench.sqs.queue_cache.cached(name)).delay == 8
    assert (await bench.refusal("PurgeQueue", QueueUrl=url)).code == MISSING
    with pytest.raises(Exception, match="does not exist"):
        await bench.sqs.queue_cache.cached(name)


async def test_a_look_that_a_change_overtakes_is_not_kept(bench: Bench) -> None:
    url = await bench.queue()
    name = name_of(url)
    looking = asyncio.gather(*(bench.sqs.queue_cache.cached(name) for _ in range(20)))
    await asyncio.sleep(0)  # they are on their way, all with one look
    bench.sqs.queue_cache.forget(name)
    known = await looking
    assert len({id(one) for one in known}) == 1
    assert await bench.sqs.queue_cache.cached(name) is not known[0]


async def test_changes_of_one_queue_at_once_are_all_kept(bench: Bench) -> None:
    url = await bench.queue()
    await asyncio.gather(
        *(bench("TagQueue", QueueUrl=url, Tags={f"tag-{n}": str(n)}) for n in range(10)),
        bench.set(url, DelaySeconds="3"),
        bench.set(url, ReceiveMessageWaitTimeSeconds="4"),
    )
    tags = (await bench("ListQueueTags", QueueUrl=url))["Tags"]
    assert tags == {f"tag-{n}": str(n) for n in range(10)}
    known = await bench.sqs.queue_cache.cached(name_of(url))
    assert (known.delay, known.wait) == (3, 4)


def test_every_action_of_the_wire_has_a_function() -> None:
    """The wire refuses all others (test_sqs_requests.py)."""
    assert set(ACTION_FUNCTIONS) == set(ACTIONS)
