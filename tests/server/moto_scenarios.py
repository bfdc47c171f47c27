"""What both servers are asked: each of the 23 actions, with its refusals.

A scenario asks one side; what it is answered is kept by the side, step by step. Here: queues, their
tags, permissions and dead letters; messages are next door.
"""

from __future__ import annotations

import json
from typing import Any

from tests.server.moto_message_scenarios import MESSAGES
from tests.server.moto_twins import Scenario, Side


def redrive(side: Side, end: str = "dead", **more: Any) -> str:
    return json.dumps({"deadLetterTargetArn": side.arn(end), "maxReceiveCount": 1, **more})


# --- queues ---------------------------------------------------------------------------------------
def create_queue(side: Side) -> None:
    side.queue(VisibilityTimeout="40")
    side.queue()
    side.queue(VisibilityTimeout="40")
    side.queue(DelaySeconds="0")
    create = {"QueueName": side.name("q")}
    side.ask("CreateQueue", **create, Attributes={"VisibilityTimeout": "41"})
    side.ask("CreateQueue", QueueName="no/slash")
    side.ask("CreateQueue", QueueName="")
    side.ask("CreateQueue", QueueName="x" * 81)
    side.ask("CreateQueue", QueueName=side.name("a.fifo"))
    side.ask("CreateQueue", QueueName=side.name("a"), Attributes={"FifoQueue": "true"})
    side.ask(
        "CreateQueue", QueueName=side.name("a"), Attributes={"FifoThroughputLimit": "perQueue"}
    )
    side.ask("CreateQueue", QueueName=side.name("a"), Attributes={"MaximumMessageSize": "1023"})
    side.ask("CreateQueue", QueueName=side.name("a"), Attributes={"Colour": "red"})


def queue_urls(side: Side) -> None:
    side.ask("GetQueueUrl", QueueName=side.name("q"))
    side.queue()
    side.ask("GetQueueUrl", QueueName=side.name("q"))
    side.ask("ListQueues", QueueNamePrefix=side.name("nothing"))
    for end in "cab":
        side.queue(f"many-{end}")
    side.ask("ListQueues", QueueNamePrefix=side.name("many"))
    side.ask("ListQueues", QueueNamePrefix=side.name("many"), MaxResults=3)
    side.ask("ListQueues", QueueNamePrefix=side.name("many"), NextToken="nonsense", MaxResults=2)
    side.ask("ListQueues", QueueNamePrefix=side.name("many"), MaxResults=1001)


def delete_queue(side: Side) -> None:
    url = side.queue()
    side.ask("SendMessage", QueueUrl=url, MessageBody="gone with its queue")
    side.ask("DeleteQueue", QueueUrl=url)
    side.ask("DeleteQueue", QueueUrl=url)
    side.ask("SendMessage", QueueUrl=url, MessageBody="too late")
    side.ask("ReceiveMessage", QueueUrl=url)
    side.ask("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
    side.ask("PurgeQueue", QueueUrl=url)
    side.queue()
    side.counts(url)


def queue_attributes(side: Side) -> None:
    url = side.queue()
    ask = {"QueueUrl": url}
    side.ask("GetQueueAttributes", **ask, AttributeNames=["All"])
    side.ask("GetQueueAttributes", **ask, AttributeNames=["QueueArn", "DelaySeconds"])
    side.ask("GetQueueAttributes", **ask, AttributeNames=["Policy"])
    side.ask("GetQueueAttributes", **ask)
    side.ask("GetQueueAttributes", **ask, AttributeNames=["Colour"])
    changed = {"VisibilityTimeout": "5", "DelaySeconds": "7", "MessageRetentionPeriod": "60"}
    side.ask("SetQueueAttributes", **ask, Attributes=changed)
    side.ask("GetQueueAttributes", **ask, AttributeNames=list(changed))
    side.ask("SetQueueAttributes", **ask, Attributes={"Colour": "red"})
    side.ask("SetQueueAttributes", **ask, Attributes={"VisibilityTimeout": "43201"})
    side.ask("SetQueueAttributes", **ask, Attributes={"ContentBasedDeduplication": "true"})
    side.ask("SetQueueAttributes", **ask, Attributes={"Policy": '{"Statement":[{"Sid":"a"}]}'})
    side.ask("GetQueueAttributes", **ask, AttributeNames=["Policy"])
    side.ask("SetQueueAttributes", **ask, Attributes={"Policy": ""})
    side.ask("GetQueueAttributes", **ask, AttributeNames=["Policy"])
    side.ask("SetQueueAttributes", **ask, Attributes={"KmsMasterKeyId": "alias/mine"})
    kms = ["KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled"]
    side.ask("GetQueueAttributes", **ask, AttributeNames=kms)
    side.ask("SetQueueAttributes", QueueUrl=f"{url}-none", Attributes=changed)


def fifo_attributes(side: Side) -> None:
    url = side.queue("q.fifo", ContentBasedDeduplication="true")
    side.ask("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
    side.ask("SetQueueAttributes", QueueUrl=url, Attributes={"DeduplicationScope": "messageGroup"})
    side.ask("GetQueueAttributes", QueueUrl=url, AttributeNames=["DeduplicationScope"])
    side.ask("SetQueueAttributes", QueueUrl=url, Attributes={"FifoQueue": "false"})


def purge_queue(side: Side) -> None:
    url = side.queue()
    for delay in (0, 0, 900):
        side.ask("SendMessage", QueueUrl=url, MessageBody="a", DelaySeconds=delay)
    side.receive(url, 1)
    side.counts(url)
    side.ask("PurgeQueue", QueueUrl=url)
    side.counts(url)
    side.receive(url)
    side.ask("PurgeQueue", QueueUrl=url)


# --- tags and permissions -------------------------------------------------------------------------
def tags(side: Side) -> None:
    url = side.queue()
    side.ask("ListQueueTags", QueueUrl=url)
    side.ask("TagQueue", QueueUrl=url, Tags={"team": "red", "Team": "", "ü": "😀"})
    side.ask("TagQueue", QueueUrl=url, Tags={"team": "blue"})
    side.ask("ListQueueTags", QueueUrl=url)
    side.ask("UntagQueue", QueueUrl=url, TagKeys=["team", "unknown"])
    side.ask("ListQueueTags", QueueUrl=url)
    side.ask("UntagQueue", QueueUrl=url, TagKeys=[])
    side.ask("TagQueue", QueueUrl=url, Tags={})
    side.ask("TagQueue", QueueUrl=url, Tags={f"t{n}": "" for n in range(51)})
    side.ask("CreateQueue", QueueName=side.name("tagged"), tags={"a": "b"})
    side.ask("ListQueueTags", QueueUrl=url.replace(side.name("q"), side.name("tagged")))
    for action, more in (("TagQueue", {"Tags": {"a": "b"}}), ("UntagQueue", {"TagKeys": ["a"]})):
        side.ask(action, QueueUrl=f"{url}-none", **more)
    side.ask("ListQueueTags", QueueUrl=f"{url}-none")


def permissions(side: Side) -> None:
    url = side.queue()
    one, two = "111122223333", "444455556666"

    def add(label: str, accounts: list[str], actions: list[str], at: str = url) -> None:
        given = {"Label": label, "AWSAccountIds": accounts, "Actions": actions}
        side.ask("AddPermission", QueueUrl=at, **given)

    add("first", [one], ["SendMessage"])
    side.ask("GetQueueAttributes", QueueUrl=url, AttributeNames=["Policy"])
    add("first", [two], ["SendMessage"])
    add("second", [one, two], ["SendMessage", "*"])
    side.ask("GetQueueAttributes", QueueUrl=url, AttributeNames=["Policy"])
    add("third", [], ["SendMessage"])
    add("third", [one], [])
    add("third", [one], ["DeleteQueue"])
    add("third", [one], ["SendMessage"] * 8)
    add("third", [one], ["SendMessage"], f"{url}-none")
    side.ask("RemovePermission", QueueUrl=url, Label="unknown")
    side.ask("RemovePermission", QueueUrl=url, Label="first")
    side.ask("RemovePermission", QueueUrl=url, Label="second")
    side.ask("GetQueueAttributes", QueueUrl=url, AttributeNames=["Policy"])
    side.ask("RemovePermission", QueueUrl=f"{url}-none", Label="first")


# --- dead letters ---------------------------------------------------------------------------------
def dead_letters(side: Side) -> None:
    dead = side.queue("dead")
    url = side.queue(RedrivePolicy=redrive(side))
    side.ask("GetQueueAttributes", QueueUrl=url, AttributeNames=["RedrivePolicy"])
    side.ask("ListDeadLetterSourceQueues", QueueUrl=dead)
    side.ask("ListDeadLetterSourceQueues", QueueUrl=url)
    side.ask("ListDeadLetterSourceQueues", QueueUrl=f"{url}-none")
    for body in ("first", "second"):
        side.ask("SendMessage", QueueUrl=url, MessageBody=body)
        side.receive(url, VisibilityTimeout=0)
    side.receive(url)
    side.counts(dead)
    asked = ["ApproximateReceiveCount", "DeadLetterQueueSourceArn", "SentTimestamp"]
    side.receive(dead, 1, MessageSystemAttributeNames=asked)
    for policy in (
        redrive(side, "nowhere"),
        '{"maxReceiveCount":1}',
        json.dumps({"deadLetterTargetArn": side.arn("dead")}),
        redrive(side, maxReceiveCount=0),
        redrive(side, maxReceiveCount="2"),
        "nonsense",
        "",
    ):
        side.ask("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": policy})
    side.ask("GetQueueAttributes", QueueUrl=url, AttributeNames=["RedrivePolicy"])
    side.queue("sorted.fifo")
    wrong = {"RedrivePolicy": redrive(side, "sorted.fifo")}
    side.ask("SetQueueAttributes", QueueUrl=url, Attributes=wrong)
    closed = {"RedriveAllowPolicy": '{"redrivePermission":"denyAll"}'}
    side.ask("SetQueueAttributes", QueueUrl=dead, Attributes=closed)
    side.ask("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": redrive(side)})


def move_tasks(side: Side) -> None:
    dead = side.queue("dead")
    side.queue(RedrivePolicy=redrive(side))
    entries = [{"Id": str(n), "MessageBody": "a"} for n in range(10)]
    for _ in range(10):  # at one a second it is still running when it is cancelled
        side.ask("SendMessageBatch", QueueUrl=dead, Entries=entries)
    side.ask("StartMessageMoveTask", SourceArn=side.arn("nowhere"))
    slow = {"SourceArn": side.arn("dead"), "MaxNumberOfMessagesPerSecond": 1}
    started = side.ask("StartMessageMoveTask", **slow)
    side.ask("ListMessageMoveTasks", SourceArn=side.arn("nowhere"))
    side.ask("ListMessageMoveTasks", SourceArn=side.arn("dead"))
    side.ask("CancelMessageMoveTask", TaskHandle="nonsense")
    side.ask("CancelMessageMoveTask", TaskHandle=started.get("TaskHandle", "none"))


SCENARIOS: tuple[Scenario, ...] = (
    create_queue,
    queue_urls,
    delete_queue,
    queue_attributes,
    fifo_attributes,
    purge_queue,
    tags,
    permissions,
    *MESSAGES,
    dead_letters,
    move_tasks,
)
