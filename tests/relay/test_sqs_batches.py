"""From messages to batches of SQS, and from answers to outcomes: the decisions alone."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError
from hypothesis import given
from hypothesis import strategies as st

from fairturn.core.message import Message
from fairturn.core.rows import MessageRow
from fairturn.core.values import BODY_JSON
from fairturn.relay.destination import DestinationError, Later, Never, Parcel
from fairturn.relay.sqs.clients import Address, endpoint_of, region_of
from fairturn.relay.sqs.entries import (
    Entry,
    Throttled,
    answered,
    batches,
    entry,
    failed,
    group_id,
    judged,
    streams,
)
from fairturn.relay.sqs.errors import code_of, meaning
from fairturn.sqs import checks, limits, md5

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
NOW = 1_700_000_000_000_000
SECOND = 1_000_000


def parcel(
    body: Any = "hello", *, channel: str = "", headers: dict[str, Any] | None = None, due: int = NOW
) -> Parcel:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    bits = 0 if isinstance(body, bytes) else BODY_JSON
    kept = None if headers is None else json.dumps(headers)
    head = (7, channel, raw, kept, None, 0, None, 0, due, NOW - SECOND, 1, 1, 5, None, None, bits)
    return Parcel(Message("q", MessageRow(*head, 0, None, None, None)), due)


def made(given: Parcel, *, fifo: bool = False, groups: bool = False) -> dict[str, Any]:
    found = entry(3, given, NOW, fifo=fifo, groups=groups)
    assert isinstance(found, Entry), found
    assert (found.place, found.id) == (3, "3")
    return found.fields


# --- entries -------------------------------------------------------------------------------------


@given(st.integers(-2000 * SECOND, 900 * SECOND))
def test_the_delay_is_never_early_and_always_allowed(us: int) -> None:
    delay = made(parcel(due=NOW + us))["DelaySeconds"]
    assert 0 <= delay <= limits.DELAY
    assert us <= delay * SECOND < max(us, 0) + SECOND
    assert delay == max(0, math.ceil(us / SECOND))


def test_what_is_due_too_late_for_sqs_is_not_sent_early() -> None:
    found = entry(0, parcel(due=NOW + 900 * SECOND + 1), NOW, fifo=False)
    assert isinstance(found, Later)
    assert not found.down
    found = entry(0, parcel(due=NOW + 2 * SECOND), NOW, fifo=True)
    assert isinstance(found, Later)


def test_a_fifo_entry_has_a_group_and_its_identity_and_no_delay() -> None:
    one = parcel(channel="tenant-7")
    assert made(one, fifo=True) == {
        "Id": "3",
        "MessageBody": "hello",
        "MessageGroupId": "tenant-7",
        "MessageDeduplicationId": one.identity,
    }
    assert made(parcel(), fifo=True)["MessageGroupId"] == "default"


def test_a_deduplication_id_that_was_given_is_kept() -> None:
    fields = made(parcel(headers={"sqs:dedup": "mine"}), fifo=True)
    assert fields["MessageDeduplicationId"] == "mine"
    assert "MessageAttributes" not in fields
    found = entry(0, parcel(headers={"sqs:dedup": "with a blank"}), NOW, fifo=True)
    assert isinstance(found, Never)
    assert "MessageDeduplicationId" in found.reason


def test_a_channel_is_a_group_of_a_standard_queue_if_one_wants() -> None:
    assert "MessageGroupId" not in made(parcel(channel="a"))
    assert made(parcel(channel="a"), groups=True)["MessageGroupId"] == "a"
    assert "MessageGroupId" not in made(parcel(), groups=True)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255))
def test_every_channel_has_a_group_id(channel: str) -> None:
    id = group_id(channel)
    checks.group_id(id)
    assert group_id(channel) == id


def test_long_channels_with_one_beginning_are_different_groups() -> None:
    assert group_id("ä" * 100 + "1") != group_id("ä" * 100 + "2")


def test_attributes_and_the_trace_go_along() -> None:
    headers = {
        "a": "x",
        "n": {"type": "Number", "value": "1.0"},
        "b": {"type": "Binary.png", "value": "AP8="},
        "sqs:trace": "Root=1-abc",
        "sqs:sender": "AIDAX",
    }
    fields = made(parcel(headers=headers))
    assert fields["MessageAttributes"] == {
        "a": {"DataType": "String", "StringValue": "x"},
        "n": {"DataType": "Number", "StringValue": "1.0"},
        "b": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
    }
    assert fields["MessageSystemAttributes"] == {
        "AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-abc"}
    }


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (parcel(""), "MessageBody"),
        (parcel(b""), "MessageBody"),
        (parcel("x" * (1024**2 + 1)), "shorter than 1048576"),
        (parcel(headers={f"h{n}": "x" for n in range(11)}), "exceeds the allowed maximum"),
        (parcel(headers={"n": {"type": "Number", "value": "seven"}}), "to a number"),
    ],
)
def test_what_sqs_cannot_hold_is_dead_and_says_why(bad: Parcel, why: str) -> None:
    found = entry(0, bad, NOW, fifo=False)
    assert isinstance(found, Never)
    assert why in found.reason


def test_the_size_counts_bodies_names_types_and_values() -> None:
    one = parcel("ä", headers={"name": "value", "b": {"type": "Binary", "value": "AP8="}})
    found = entry(0, one, NOW, fifo=False)
    assert isinstance(found, Entry)
    assert found.size == len("ä".encode()) + len("nameStringvalue") + len("bBinary") + 2


# --- batches -------------------------------------------------------------------------------------


def entries(sizes: list[int], groups: list[str] | None = None) -> list[Entry]:
    named = groups or [""] * len(sizes)
    return [
        Entry(n, {"Id": str(n), "MessageBody": "x", "MessageGroupId": group}, size)
        for n, (size, group) in enumerate(zip(sizes, named, strict=True))
    ]


@given(st.lists(st.integers(1, 120), max_size=60))
def test_batches_are_small_enough_and_keep_the_order(sizes: list[int]) -> None:
    given = entries(sizes)
    found = batches(given, 100)
    assert [one for batch in found for one in batch] == given
    for batch in found:
        assert 1 <= len(batch) <= limits.BATCH
        assert len(batch) == 1 or sum(one.size for one in batch) <= 100
    for batch, after in itertools.pairwise(found):  # none is started before it must be
        assert len(batch) == limits.BATCH or sum(one.size for one in batch) + after[0].size > 100


@given(st.lists(st.sampled_from("abcdef"), max_size=50), st.integers(1, 8))
def test_a_group_is_in_one_stream_in_its_order(groups: list[str], n: int) -> None:
    given = entries([1] * len(groups), groups)
    found = streams(given, n)
    assert sorted(one.place for stream in found for one in stream) == list(range(len(groups)))
    assert len(found) <= n
    for name in set(groups):
        homes = [[o.place for o in stream if o.group == name] for stream in found]
        [home] = [places for places in homes if places]
        assert home == sorted(home)


# --- answers -------------------------------------------------------------------------------------


def test_each_entry_has_the_outcome_that_the_answer_tells() -> None:
    batch = entries([1] * 5)
    answer = {
        "Successful": [
            {"Id": "0", "MD5OfMessageBody": md5.of_body("x")},
            {"Id": "4", "MD5OfMessageBody": md5.of_body("y")},
        ],
        "Failed": [
            {"Id": "1", "SenderFault": True, "Code": "InvalidParameterValue", "Message": "no"},
            {"Id": "2", "SenderFault": False, "Code": "InternalError", "Message": "oops"},
        ],
    }
    found = answered(batch, answer)
    assert found[0] is None
    assert found[1] == Never("SQS: InvalidParameterValue: no")
    assert found[2] == Later("SQS: InternalError: oops")
    assert isinstance(found[3], Later)  # it is in neither list
    assert isinstance(found[4], Never)  # what arrived is not what was sent
    assert set(found) == {0, 1, 2, 3, 4}


def test_a_throttled_entry_is_not_dead() -> None:
    found = failed({"Id": "1", "SenderFault": True, "Code": "ThrottlingException", "Message": ""})
    assert isinstance(found, Throttled)
    assert not found.down


def test_the_queue_is_down_only_if_everything_is_throttled() -> None:
    slow = Throttled("slow down")
    assert judged([slow, slow]) == [Later("slow down", down=True)] * 2
    assert judged([slow, None]) == [slow, None]
    assert judged([]) == []


# --- errors of whole calls -----------------------------------------------------------------------


def client_error(code: str, status: int = 400) -> sdk.ClientError:
    response: Any = {
        "Error": {"Code": code, "Message": "text"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return sdk.ClientError(response, "SendMessageBatch")


@pytest.mark.parametrize(
    ("error", "kind", "down", "says"),
    [
        (client_error("ThrottlingException"), Throttled, False, "throttling"),
        (client_error("Anything", 429), Throttled, False, "throttling"),
        (
            client_error("AWS.SimpleQueueService.NonExistentQueue"),
            *(Later, True, "Create it there"),
        ),
        (client_error("AccessDenied", 403), Later, True, "must allow sqs:SendMessage"),
        (client_error("Strange", 403), Later, True, "must allow sqs:SendMessage"),
        (client_error("InternalFailure", 500), Later, True, "answered 500"),
        (client_error("KmsDisabled", 400), Later, True, "KmsDisabled"),
        (client_error("InvalidMessageContents"), Never, None, "InvalidMessageContents"),
        (sdk.NoCredentialsError(), Later, True, "AWS_ACCESS_KEY_ID"),
        (sdk.EndpointConnectionError(endpoint_url=URL), Later, True, "cannot be reached"),
        (sdk.ConnectTimeoutError(endpoint_url=URL), Later, True, "cannot be reached"),
        (sdk.ReadTimeoutError(endpoint_url=URL), Later, True, "cannot be reached"),
        (sdk.ParamValidationError(report="odd"), Never, None, "odd"),
        (sdk.TokenRetrievalError(provider="sso", error_msg="old"), Later, True, "sso"),
        (ResponseParserError("no JSON"), Later, True, "did not come from AWS"),
        (ConnectionResetError("reset"), Later, True, "cannot be reached"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_what_an_error_means(error: Exception, kind: type, down: bool | None, says: str) -> None:
    found = meaning(error, URL)
    assert type(found) is kind
    assert getattr(found, "down", None) is down
    assert found is not None
    assert says in found.reason


def test_a_mistake_of_ours_is_no_outcome() -> None:
    assert meaning(KeyError("x"), URL) is None
    assert code_of(KeyError("x")) == ""
    assert code_of(client_error("AWS.SimpleQueueService.BatchRequestTooLong")) == (
        "BatchRequestTooLong"
    )


# --- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "region", "own_endpoint"),
    [
        ("sqs.eu-west-1.amazonaws.com", "eu-west-1", False),
        ("sqs-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1", False),
        ("sqs.cn-north-1.amazonaws.com.cn", "cn-north-1", False),
        ("sqs.ap-southeast-2.api.aws", "ap-southeast-2", False),
        ("eu-central-1.queue.amazonaws.com", "eu-central-1", False),
        ("queue.amazonaws.com", "us-east-1", False),
        ("vpce-0a1b-c2d3.sqs.us-east-1.vpce.amazonaws.com", "us-east-1", True),
        ("sqs.eu-west-1.example.org", None, True),
        ("127.0.0.1:9324", None, True),
        ("notamazonaws.com", None, True),
    ],
)
def test_what_a_host_tells(host: str, region: str | None, own_endpoint: bool) -> None:
    url = f"https://{host}/123456789012/orders"
    assert region_of(url) == region
    assert endpoint_of(url) == (f"https://{host}" if own_endpoint else None)


@pytest.mark.parametrize(
    "address",
    [
        Address(URL),
        Address(URL, "eu-west-3"),
        Address(URL, None, True),
        Address("http://127.0.0.1:9324/000000000000/orders.fifo", "here", True),
    ],
)
def test_an_address_is_read_as_it_is_written(address: Address) -> None:
    assert Address.of(str(address)) == address


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (URL, "looks like"),
        ("sqs:orders", "looks like"),
        ("sqs:ftp://host/orders", "looks like"),
        ("sqs:https:///orders", "looks like"),
        ("sqs:https://host", "names no queue"),
        ("sqs:https://host/a/b#c", "names no queue"),
        ("sqs:https://host:port/a/b", "no address"),
        ("sqs:https://[half/a/b", "no address"),
        ("sqs:https://key:secret@host/a/b", "AWS_ACCESS_KEY_ID"),
        ("sqs:https://host/a/b?regoin=x", "regoin"),
        ("sqs:https://host/a/b?groups=maybe", "groups"),
        ("sqs:https://host/a/b?x", "no address"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(DestinationError, match=says) as caught:
        Address.of(text)
    assert "secret" not in str(caught.value)
