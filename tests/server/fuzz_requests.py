"""Requests as clients send them, in both protocols, and what a fuzzer makes of them.

A request is made from the table of actions with values that make sense, some of them taken from
earlier answers (receipt handles, task handles, tokens). Then at most one kind of harm is done to
it: a value of its tree is replaced, its body's bytes are changed, or the bytes on the wire are.
"""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

from fairturn.server.sqs.attribute_rules import RULES
from fairturn.server.sqs.wire.action_table import (
    ACTIONS,
    STRING,
    ListOf,
    MapOf,
    Scalar,
    Structure,
    Type,
)
from tests.server.fuzz_harm import spoil_bytes, spoil_value

JSON = "application/x-amz-json-1.0"
FORM = "application/x-www-form-urlencoded; charset=utf-8"
QUEUES = ("plain", "other", "dead", "in-order.fifo", "dead.fifo", "wide")
ARN = "arn:aws:sqs:us-east-1:000000000000:"
BIG = 300_000  # characters of the largest texts, nearly


@dataclass
class Stock:
    """What earlier answers gave, for later requests to give back."""

    url: str
    handles: deque[str] = field(default_factory=lambda: deque(["x"], 200))
    tasks: deque[str] = field(default_factory=lambda: deque(["x"], 20))
    tokens: deque[str] = field(default_factory=lambda: deque(["x"], 20))

    def learn(self, answer: Any) -> None:
        """From an answer in JSON."""
        for message in answer.get("Messages", ()):
            self.handles.append(message["ReceiptHandle"])
        if "TaskHandle" in answer:
            self.tasks.append(answer["TaskHandle"])
        if "NextToken" in answer:
            self.tokens.append(answer["NextToken"])


@dataclass(frozen=True)
class Shot:
    pieces: list[bytes]  # as they are written, one after the other
    action: str
    sound: bool  # as HTTP it is: exactly one answer must come
    hasty: bool = False  # the client does not wait for the answer

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


# --- values that make sense -----------------------------------------------------------------------
Make = Callable[[random.Random, Stock], Any]


def _queue(rng: random.Random, stock: Stock) -> str:
    name = rng.choice(QUEUES)
    return rng.choice([f"{stock.url}/000000000000/{name}", f"https://elsewhere/1/{name}", name])


def _text(rng: random.Random, stock: Stock) -> str:
    texts = [
        "hello",
        '{"a": 1}',
        "[1]",
        '"',
        "ü😀\r\n\t",
        "<&>]]>",
        " ",
        "x" * rng.randrange(1, 2000),
    ]
    return rng.choice([*texts, "y" * BIG]) if rng.random() < 0.02 else rng.choice(texts)


def _attribute(rng: random.Random, stock: Stock) -> dict[str, Any]:
    kind = rng.choice(["String", "Number", "Binary", "String.mine", "Number.int"])
    if kind == "Binary":
        return {"DataType": kind, "BinaryValue": rng.randbytes(rng.randrange(1, 40))}
    value = str(rng.randrange(-9, 10**9)) if kind.startswith("Number") else _text(rng, stock)
    return {"DataType": kind, "StringValue": value}


def _settings(rng: random.Random, stock: Stock) -> dict[str, str]:
    dead = ARN + rng.choice(["dead", "dead.fifo", "nowhere"])
    known: dict[str, list[str]] = {
        "VisibilityTimeout": ["0", "1", "30", "43200"],
        "DelaySeconds": ["0", "0", "1"],
        "MessageRetentionPeriod": ["60", "345600"],
        "MaximumMessageSize": ["1024", "1048576"],
        "ReceiveMessageWaitTimeSeconds": ["0"],
        "RedrivePolicy": [
            "",
            json.dumps(
                {"deadLetterTargetArn": dead, "maxReceiveCount": rng.choice([1, "2", 1000])}
            ),
        ],
        "RedriveAllowPolicy": ["", '{"redrivePermission":"allowAll"}'],
        "Policy": ["", '{"Statement":[{"Sid":"a"}]}', '{"Statement":"\\ud800"}'],
        "KmsMasterKeyId": ["", "alias/aws/sqs"],
        "SqsManagedSseEnabled": ["true", "false"],
        "ContentBasedDeduplication": ["true", "false"],
        "DeduplicationScope": ["queue", "messageGroup"],
        "FifoQueue": ["true", "false"],
    }
    chosen = rng.sample(sorted(known), rng.randrange(1, 4))
    return {name: rng.choice(known[name]) for name in chosen}


def _one_of(*values: Any) -> Make:
    return lambda rng, stock: rng.choice(values)


def _tags(rng: random.Random, stock: Stock) -> dict[str, str]:
    return {rng.choice(["team", "Team", "a b", "ü"]): rng.choice(["", "red", "x" * 256])}


VALUES: dict[str, Make] = {
    "QueueUrl": _queue,
    "QueueName": _one_of(*QUEUES),
    "QueueNamePrefix": _one_of("", "d", "plain"),
    "MessageBody": _text,
    "MessageGroupId": _one_of("a", "b", "tenant-1"),
    "MessageDeduplicationId": lambda rng, stock: f"d{rng.randrange(50)}",
    "ReceiveRequestAttemptId": lambda rng, stock: f"r{rng.randrange(5)}",
    "ReceiptHandle": lambda rng, stock: rng.choice(stock.handles),
    "TaskHandle": lambda rng, stock: rng.choice(stock.tasks),
    "NextToken": lambda rng, stock: rng.choice(stock.tokens),
    "SourceArn": _one_of(ARN + "dead", ARN + "dead.fifo", ARN + "plain", ARN + "nowhere"),
    "DestinationArn": _one_of(ARN + "plain", ARN + "other", ARN + "in-order.fifo"),
    "MaxNumberOfMessagesPerSecond": _one_of(1, 500),
    "MaxNumberOfMessages": _one_of(1, 2, 10),
    "MaxResults": _one_of(1, 2, 10),
    "VisibilityTimeout": _one_of(0, 0, 1, 30, 43200),
    "WaitTimeSeconds": _one_of(0, 0, 0, 1),
    "DelaySeconds": _one_of(0, 0, 1, 900),
    "MessageAttributes": lambda rng, stock: {
        name: _attribute(rng, stock)
        for name in rng.sample(["a", "b.c", "é", "fairturn.key", "fairturn.priority"], 2)
    },
    "MessageSystemAttributes": lambda rng, stock: {
        "AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}
    },
    "AttributeNames": _one_of(["All"], [], ["QueueArn", "VisibilityTimeout"], ["SentTimestamp"]),
    "MessageSystemAttributeNames": _one_of(["All"], ["SenderId"]),
    "MessageAttributeNames": _one_of(["All"], ["a", ".*"], ["b.*"], ["AWS.x"]),
    "Attributes": _settings,
    "Tags": _tags,
    "tags": _tags,
    "TagKeys": _one_of(["team"], ["a b", "nothing"]),
    "Label": _one_of("alice", "bob"),
    "AWSAccountIds": _one_of(["123456789012"], ["123456789012", "210987654321"]),
    "Actions": _one_of(["SendMessage"], ["*"], ["SendMessage", "ReceiveMessage"]),
    "QueueOwnerAWSAccountId": _one_of("123456789012"),
    "Id": lambda rng, stock: f"id-{rng.randrange(10**6)}",
}
SELDOM = {"DeleteQueue", "PurgeQueue"}  # or nothing would be there to ask for


def members(rng: random.Random, stock: Stock, structure: Structure) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, member in structure.members.items():
        if not member.required and rng.random() < 0.5:
            continue
        if name == "Entries":
            assert isinstance(member.type, ListOf)
            entry = member.type.item
            assert isinstance(entry, Structure)
            found[name] = [members(rng, stock, entry) for _ in range(rng.choice([1, 2, 10]))]
        else:
            found[name] = VALUES[name](rng, stock)
    return found


def agreeing(rng: random.Random, tree: dict[str, Any]) -> dict[str, Any]:
    """Mostly without what the type of its queue does not know, so that more is looked at."""
    if rng.random() < 0.2:
        return tree
    fifo = str(tree.get("QueueUrl", tree.get("QueueName", ""))).endswith(".fifo")
    odd = {"DelaySeconds"} if fifo else {"MessageDeduplicationId", "ReceiveRequestAttemptId"}
    needed = {"MessageGroupId": "a"} if fifo and "MessageBody" in tree else {}
    found: dict[str, Any] = {**needed, **tree}
    found = {name: value for name, value in found.items() if name not in odd}
    if "Entries" in found:
        known = {"QueueUrl": found["QueueUrl"]}
        entries = (agreeing(rng, known | entry) for entry in found["Entries"])
        found["Entries"] = [
            {name: value for name, value in entry.items() if name != "QueueUrl"}
            for entry in entries
        ]
    if "Attributes" in found and not fifo:
        kept = {name: v for name, v in found["Attributes"].items() if not RULES[name].fifo}
        found["Attributes"] = kept or {"VisibilityTimeout": "30"}
    return found


# --- bytes ----------------------------------------------------------------------------------------
def fields(type: Type, value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """A tree flattened as Query has it, also where it does not fit the table."""
    dot = f"{name}." if name else ""
    if isinstance(value, dict) and not isinstance(type, MapOf):
        known = type.members if isinstance(type, Structure) else {}
        for key, item in value.items():
            member = known.get(key)
            inner, own = (member.type, member.query) if member else (STRING, key)
            yield from fields(inner, item, dot + own)
    elif isinstance(value, dict):
        assert isinstance(type, MapOf)
        for number, (key, item) in enumerate(value.items(), 1):
            yield f"{dot}{number}.{type.key_name}", str(key)
            yield from fields(type.value, item, f"{dot}{number}.{type.value_name}")
    elif isinstance(value, list):
        inner = type.item if isinstance(type, ListOf) else Scalar("string")
        for number, item in enumerate(value, 1):
            yield from fields(inner, item, f"{dot}{number}")
    elif value is not None:
        yield name, b64encode(value).decode() if isinstance(value, bytes) else str(value)


def as_form(action: str, tree: Any) -> bytes:
    pairs = [("Action", action), ("Version", "2012-11-05"), *fields(ACTIONS[action].input, tree)]
    quoted = ((_quoted(name), _quoted(value)) for name, value in pairs)
    return "&".join(f"{name}={value}" for name, value in quoted).encode()


def _quoted(text: str) -> str:
    return quote_plus(text.encode("utf-8", "surrogatepass"))


def as_json(tree: Any) -> bytes:
    return json.dumps(tree, default=lambda raw: b64encode(raw).decode()).encode()


def shot(rng: random.Random, stock: Stock) -> Shot:
    """One request, as it should be or not."""
    action = rng.choice(sorted(ACTIONS))
    if action in SELDOM and rng.random() < 0.9:
        action = rng.choice(["SendMessage", "ReceiveMessage"])
    tree: Any = agreeing(rng, members(rng, stock, ACTIONS[action].input))
    harm = rng.choice(["none", "none", "value", "value", "body", "wire"])
    if harm == "value":
        for _ in range(rng.choice([1, 1, 2, 4])):
            tree = spoil_value(rng, tree)
    style = rng.choice(["json", "json", "form", "get"])
    body = (
        as_json(tree)
        if style == "json"
        else as_form(action, tree if isinstance(tree, dict) else {})
    )
    if harm == "body":
        body = spoil_bytes(rng, body)
        if style == "get":  # which has it in its first line
            body = quote_plus(body, safe="%&=+").encode()
    method, path, lines = "POST", _path(rng), [f"Host: {_host(stock)}"]
    if style == "get":
        method, path, body = "GET", f"{path}?{body.decode('latin-1')}", b""
    elif style == "json":
        lines += [f"Content-Type: {JSON}", f"X-Amz-Target: AmazonSQS.{action}"]
    else:
        lines.append(f"Content-Type: {FORM}")
    if rng.random() < 0.1:
        lines.append(rng.choice(["X-Amzn-Trace-Id: Root=1", "Accept: */*", "Cookie: \xff", "X:"]))
    return _wired(rng, action, harm, method, path, lines, body)


def _path(rng: random.Random) -> str:
    return rng.choice(["/", "/", "/000000000000/plain", "/1/in-order.fifo", "/x", "//", "/%ff/%00"])


def _host(stock: Stock) -> str:
    return stock.url.partition("//")[2]


def _wired(
    rng: random.Random,
    action: str,
    harm: str,
    method: str,
    path: str,
    lines: list[str],
    body: bytes,
) -> Shot:
    if body and rng.random() < 0.1:
        lines = [*lines, "Transfer-Encoding: chunked"]
        middle = rng.randrange(len(body))
        parts = [part for part in (body[:middle], body[middle:]) if part]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    elif method == "POST":
        lines = [*lines, f"Content-Length: {len(body)}"]
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode("latin-1")
    data = head + body
    sound = harm != "wire" and len(head) < 60_000  # longer ones are refused, and closed
    if harm == "wire":
        data = spoil_bytes(rng, data)
    pieces = [data]
    if len(data) > 1 and rng.random() < 0.1:
        cut = rng.randrange(1, len(data))
        pieces = [data[:cut], data[cut:]]
    return Shot(pieces, action, sound, hasty=rng.random() < 0.03)
