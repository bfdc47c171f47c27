"""What both servers are asked about messages: sending, receiving, finishing them, and FIFO."""

from __future__ import annotations

from typing import Any

from tests.server.moto_twins import Scenario, Side

TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"


def text(value: str, kind: str = "String") -> dict[str, str]:
    return {"DataType": kind, "StringValue": value}


# --- sending --------------------------------------------------------------------------------------
def send_message(side: Side) -> None:
    url = side.queue(MaximumMessageSize="2048")

    def send(body: str = "a", **more: Any) -> None:
        side.ask("SendMessage", QueueUrl=url, MessageBody=body, **more)

    send("hello")
    send("ü😀 <&> \r\n\t")
    send(MessageAttributes={"timestamp": text("1493147359900", "Number")})
    both = {"a": text("b"), "c.d": {"DataType": "Binary.x", "BinaryValue": b"\0\xff"}}
    send(MessageAttributes=both)
    send(MessageSystemAttributes={"AWSTraceHeader": text(TRACE)})
    send("")
    send("\0")
    send("x" * 2048)
    send("x" * 2049)
    send(DelaySeconds=901)
    send(DelaySeconds=-1)
    send(MessageAttributes={"a": text("b", "Colour")})
    send(MessageAttributes={"a": text("")})
    send(MessageAttributes={"a": text("b", "")})
    send(MessageAttributes={f"a{n}": text("b") for n in range(11)})
    send(MessageAttributes={"AWS.a": text("b")})
    send(MessageAttributes={"a": text("red", "Number")})
    send(MessageGroupId="tenant")
    send(MessageGroupId="two words")
    send(MessageDeduplicationId="a")
    side.ask("SendMessage", QueueUrl=f"{url}-none", MessageBody="a")


def send_batch(side: Side) -> None:
    url = side.queue()

    def send(*entries: dict[str, Any], at: str = url) -> None:
        side.ask("SendMessageBatch", QueueUrl=at, Entries=list(entries))

    one = {"Id": "1", "MessageBody": "a"}
    send(one, {"Id": "2", "MessageBody": "b", "MessageAttributes": {"n": text("1", "Number")}})
    send(one, {"Id": "2", "MessageBody": "b", "DelaySeconds": 901})
    send()
    send(*({"Id": str(n), "MessageBody": "a"} for n in range(11)))
    send(one, one)
    send({"Id": "a b", "MessageBody": "a"})
    send({"Id": "", "MessageBody": "a"})
    send({"Id": "1", "MessageBody": "a" * 600_000}, {"Id": "2", "MessageBody": "b" * 600_000})
    send(one, at=f"{url}-none")
    side.counts(url)
    send(one, {"Id": "2", "MessageBody": "\0"})


def delays(side: Side) -> None:
    url = side.queue(DelaySeconds="900")
    side.ask("SendMessage", QueueUrl=url, MessageBody="later")
    side.ask("SendMessage", QueueUrl=url, MessageBody="now", DelaySeconds=0)
    side.counts(url)
    side.receive(url)
    side.ask("SendMessage", QueueUrl=url, MessageBody="soon", DelaySeconds=1)
    side.receive(url, WaitTimeSeconds=20)


# --- receiving ------------------------------------------------------------------------------------
def receive_message(side: Side) -> None:
    url = side.queue()
    side.receive(url)
    some = {"a": text("1", "Number"), "b.c": text("d"), "b.e": text("f")}
    trace = {"AWSTraceHeader": text(TRACE)}
    send = {"QueueUrl": url, "MessageBody": "hello", "MessageAttributes": some}
    side.ask("SendMessage", **send, MessageSystemAttributes=trace)
    again = {"VisibilityTimeout": 0}
    side.receive(url, **again)
    side.receive(url, AttributeNames=["All"], **again)
    side.receive(url, MessageSystemAttributeNames=["All"], **again)
    side.receive(
        url, AttributeNames=["SentTimestamp"], MessageSystemAttributeNames=["SenderId"], **again
    )
    for names in (["All"], ["a"], [".*"], ["b.*"], ["AWS.x", "nothing"], ["a", "b.c"]):
        side.receive(url, MessageAttributeNames=names, **again)
    side.receive(url, AttributeNames=["Colour"], **again)
    side.receive(url, 0)
    side.receive(url, 11)
    side.receive(url, WaitTimeSeconds=21)
    side.receive(url, VisibilityTimeout=43201)
    side.receive(url, VisibilityTimeout=-1)
    side.receive(f"{url}-none")
    side.receive(url)
    side.receive(url)
    side.counts(url)


def batches_are_received(side: Side) -> None:
    url = side.queue()
    entries = [{"Id": str(n), "MessageBody": "same"} for n in range(10)]
    side.ask("SendMessageBatch", QueueUrl=url, Entries=entries)
    for n in (3, 10, 1):
        side.receive(url, n)


def visibility(side: Side) -> None:
    url = side.queue(VisibilityTimeout="1")
    side.ask("SendMessage", QueueUrl=url, MessageBody="a")
    [first] = side.receive(url)
    side.receive(url)
    [second] = side.receive(url, WaitTimeSeconds=20, AttributeNames=["ApproximateReceiveCount"])

    def change(handle: str, seconds: int, at: str = url) -> None:
        given = {"ReceiptHandle": handle, "VisibilityTimeout": seconds}
        side.ask("ChangeMessageVisibility", QueueUrl=at, **given)

    change(second["ReceiptHandle"], 600)
    side.receive(url)
    change(first["ReceiptHandle"], 0)
    [third] = side.receive(url)
    change(third["ReceiptHandle"], 43201)
    change(third["ReceiptHandle"], -1)
    change("nonsense", 0)
    change(third["ReceiptHandle"], 0, f"{url}-none")
    entries = [
        {"Id": "1", "ReceiptHandle": third["ReceiptHandle"], "VisibilityTimeout": 300},
        {"Id": "2", "ReceiptHandle": "nonsense", "VisibilityTimeout": 300},
        {"Id": "3", "ReceiptHandle": third["ReceiptHandle"], "VisibilityTimeout": 43201},
    ]
    side.ask("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=entries)
    side.counts(url)
    side.ask("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=[])
    side.ask("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=[entries[0]] * 2)
    side.ask("DeleteMessage", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    side.counts(url)
    change(third["ReceiptHandle"], 0)


def delete_message(side: Side) -> None:
    url = side.queue()
    entries = [{"Id": str(n), "MessageBody": "a"} for n in range(4)]
    side.ask("SendMessageBatch", QueueUrl=url, Entries=entries)
    handles = [message["ReceiptHandle"] for message in side.receive(url)]
    side.ask("DeleteMessage", QueueUrl=url, ReceiptHandle=handles[0])
    side.ask("DeleteMessage", QueueUrl=url, ReceiptHandle=handles[0])
    side.ask("DeleteMessage", QueueUrl=url, ReceiptHandle="nonsense")
    side.ask("DeleteMessage", QueueUrl=f"{url}-none", ReceiptHandle=handles[1])
    side.counts(url)

    def delete(*entries: tuple[str, str], at: str = url) -> None:
        given = [{"Id": id, "ReceiptHandle": handle} for id, handle in entries]
        side.ask("DeleteMessageBatch", QueueUrl=at, Entries=given)

    delete(("1", handles[1]), ("2", "nonsense"), ("3", handles[0]))
    side.counts(url)
    delete()
    delete(*((str(n), f"{n}") for n in range(11)))
    delete(("1", handles[2]), ("1", handles[3]))
    delete(("1", handles[2]), ("2", handles[2]))
    delete(("a b", handles[3]))
    delete(("1", handles[3]), at=f"{url}-none")


# --- FIFO -----------------------------------------------------------------------------------------
def fifo(side: Side) -> None:
    url = side.queue("q.fifo")

    def send(body: str, group: str | None, id: str | None, **more: Any) -> None:
        ids = {"MessageGroupId": group, "MessageDeduplicationId": id}
        given = {name: value for name, value in ids.items() if value is not None}
        side.ask("SendMessage", QueueUrl=url, MessageBody=body, **given, **more)

    send("a1", "a", "1")
    send("a2", "a", "2")
    send("b1", "b", "3")
    send("again", "a", "1")
    send("no group", None, "4")
    send("no id", "a", None)
    send("delayed", "a", "5", DelaySeconds=1)
    send("not delayed", "c", "6", DelaySeconds=0)
    side.counts(url)
    [first] = side.receive(url, 1, AttributeNames=["All"])
    side.receive(url, 10)
    side.receive(url, 10)
    side.ask("DeleteMessage", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    [second] = side.receive(url, 10)
    given = {"ReceiptHandle": second["ReceiptHandle"], "VisibilityTimeout": 0}
    side.ask("ChangeMessageVisibility", QueueUrl=url, **given)
    side.receive(url, 10, AttributeNames=["ApproximateReceiveCount", "MessageGroupId"])
    send("after its delete", "a", "1")
    entries = [
        {"Id": "1", "MessageBody": "x", "MessageGroupId": "g"},
        {"Id": "2", "MessageBody": "y"},
    ]
    side.ask("SendMessageBatch", QueueUrl=url, Entries=entries)


def fifo_by_content(side: Side) -> None:
    url = side.queue("q.fifo", ContentBasedDeduplication="true")
    for body, group in (("a", "g"), ("a", "h"), ("b", "g")):
        side.ask("SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId=group)
    side.counts(url)
    side.receive(url, AttributeNames=["MessageDeduplicationId"])


def receive_attempts(side: Side) -> None:
    url = side.queue("q.fifo", ContentBasedDeduplication="true")
    side.ask("SendMessage", QueueUrl=url, MessageBody="a", MessageGroupId="g")
    side.receive(url, ReceiveRequestAttemptId="one")
    side.receive(url, ReceiveRequestAttemptId="one")
    side.receive(side.queue(), ReceiveRequestAttemptId="one")


MESSAGES: tuple[Scenario, ...] = (
    send_message,
    send_batch,
    delays,
    receive_message,
    batches_are_received,
    visibility,
    delete_message,
    fifo,
    fifo_by_content,
    receive_attempts,
)
