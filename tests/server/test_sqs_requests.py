"""Requests to the letter: which bytes are which request, in both protocols."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from fairturn.server.sqs.wire import protocols
from fairturn.sqs import limits
from tests.server.sqs_asking import encoded, parse, refusal

ID = "b5293cb5-d306-4a17-9048-b263635abe42"
QUEUE = "/123456789012/orders"
FORM = [("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")]


def json_request(action: str, body: Any, path: str = "/", **headers: str) -> protocols.Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse("POST", path, "", json_headers(action, **headers), raw)


def json_headers(action: str, **headers: str) -> list[tuple[str, str]]:
    return [
        ("Content-Type", "application/x-amz-json-1.0"),
        ("X-Amz-Target", f"AmazonSQS.{action}"),
        *((name.replace("_", "-"), value) for name, value in headers.items()),
    ]


def form(action: str, path: str = "/", **fields: str) -> protocols.Request:
    return posted({"Action": action, **fields}, path)


def posted(fields: dict[str, str], path: str = "/") -> protocols.Request:
    return parse("POST", path, "", FORM, urlencode(fields).encode())


# --- where a request goes ---


@pytest.mark.parametrize("path", ["", "/", QUEUE, "/any/thing/at/all"])
def test_json_is_read_on_any_path(path: str) -> None:
    request = json_request("GetQueueUrl", {"QueueName": "orders"}, path)
    assert request.members == {"QueueName": "orders"}


def test_json_without_the_header_of_query_mode_is_the_same() -> None:
    body = {"QueueUrl": "u"}
    assert json_request("PurgeQueue", body) == json_request(
        "PurgeQueue", body, x_amzn_query_mode="true"
    )


def test_query_on_a_queues_url_implies_its_queue() -> None:
    request = form("SendMessage", QUEUE, MessageBody="hi")
    assert request.members == {"QueueUrl": QUEUE, "MessageBody": "hi"}


def test_an_explicit_queue_url_wins() -> None:
    request = form("PurgeQueue", QUEUE, QueueUrl="http://other/1/returns")
    assert request.members == {"QueueUrl": "http://other/1/returns"}


def test_a_get_is_read_from_its_query_string() -> None:
    query = "Action=SendMessage&MessageBody=a+b%2Bc%20%C3%BC&Version=2012-11-05&X-Amz-Date=x"
    request = parse("GET", QUEUE, query, [], b"")
    assert request == protocols.Request(
        "query", "SendMessage", {"QueueUrl": QUEUE, "MessageBody": "a b+c ü"}
    )


def test_a_posts_query_string_may_have_the_signature_and_more() -> None:
    request = parse(
        "POST", QUEUE, "X-Amz-Signature=0&Action=PurgeQueue", FORM, b"Action=DeleteQueue"
    )
    assert request.action == "DeleteQueue"


def test_a_form_with_raw_utf8_is_read() -> None:
    request = parse("POST", QUEUE, "", FORM, "Action=SendMessage&MessageBody=ü€".encode())
    assert request.members["MessageBody"] == "ü€"


def test_a_long_percent_encoded_text_is_read_whole() -> None:
    """It is decoded in slices; no slice may cut an escape."""
    for shift in range(4):
        text = "x" * shift + "ü€😀" * 50_000
        body = b"Action=SendMessage&MessageBody=" + quote(text).encode()
        assert parse("POST", QUEUE, "", FORM, body).members["MessageBody"] == text


@pytest.mark.parametrize("action", ["CreateQueue", "ListQueues"])
def test_what_makes_and_lists_queues_is_refused_on_a_queues_url(action: str) -> None:
    error = refusal(form, action, QUEUE, QueueName="x")
    assert error.code == "InvalidAction"
    assert error.message == f"The action {action} is not valid for this endpoint."
    assert form(action, QueueName="x").action == action


def test_an_unknown_action() -> None:
    for error in (refusal(form, "FooBar"), refusal(json_request, "FooBar", {})):
        assert (error.code, error.status) == ("InvalidAction", 400)
        assert error.message == "The action FooBar is not valid for this endpoint."


@pytest.mark.parametrize("path", ["/", QUEUE])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD", "DELETE"])
def test_no_action_at_all(method: str, path: str) -> None:
    headers = [("Accept", "application/json")]
    error = refusal(parse, method, path, "", headers, b"")
    response = protocols.render_error(protocols.protocol_of(encoded(headers)), error, ID)
    assert response.status == 404
    assert response.body == b"<UnknownOperationException/>\n"
    assert (b"content-type", b"text/xml") in response.headers


def test_json_needs_a_post_and_a_target() -> None:
    headers = json_headers("ListQueues")
    assert refusal(parse, "GET", "/", "", headers, b"{}").status == 404
    assert refusal(parse, "POST", "/", "", headers[:1], b"{}").status == 404
    other = [headers[0], ("X-Amz-Target", "DynamoDB_20120810.ListQueues")]
    assert refusal(parse, "POST", "/", "", other, b"{}").code == "InvalidAction"
    doubled = [*headers, headers[1]]
    assert refusal(parse, "POST", "/", "", doubled, b"{}").code == "InvalidAction"


@pytest.mark.parametrize(
    ("headers", "protocol"),
    [
        ([("content-type", "application/x-amz-json-1.0")], "json"),
        ([("CONTENT-TYPE", "Application/X-Amz-Json-1.0; charset=utf-8")], "json"),
        ([("content-type", "application/json"), ("x-amz-target", "AmazonSQS.X")], "json"),
        ([("x-amz-target", "AmazonSQS.X")], "json"),
        ([*FORM, ("x-amz-target", "AmazonSQS.X")], "query"),
        ([("accept", "application/x-amz-json-1.0")], "query"),
        ([], "query"),
    ],
)
def test_the_protocol_is_told_from_the_headers(
    headers: list[tuple[str, str]], protocol: str
) -> None:
    assert protocols.protocol_of(encoded(headers)) == protocol


def test_a_trace_header_is_kept_if_it_is_one() -> None:
    def trace(value: str) -> str | None:
        return json_request("PurgeQueue", {"QueueUrl": "u"}, X_Amzn_Trace_Id=value).trace

    assert trace("Root=1-5759e988-bd862e3fe1be46a994272793") is not None
    assert trace("") is None
    assert trace("a\x00b") is None
    assert trace("x" * 10_000) is None


# --- what a request says ---


def test_unknown_members_are_ignored() -> None:
    known = {"QueueUrl": "u", "Entries": [{"Id": "1", "ReceiptHandle": "h"}]}
    more: dict[str, Any] = json.loads(json.dumps(known)) | {"New": {"a": [1, None, True]}}
    more["Entries"][0]["Newer"] = 1.5
    assert json_request("DeleteMessageBatch", more).members == known
    request = form("PurgeQueue", QueueUrl="u", Foo="1", **{"QueueUrl.1.x": "y", "A.B.C": "1"})
    assert request.members == {"QueueUrl": "u"}


def test_null_is_nothing() -> None:
    body = {"QueueUrl": "u", "MessageBody": "b", "DelaySeconds": None, "MessageAttributes": None}
    assert json_request("SendMessage", body).members == {"QueueUrl": "u", "MessageBody": "b"}
    assert refusal(json_request, "PurgeQueue", {"QueueUrl": None}).code == "MissingParameter"


def test_an_empty_json_body_is_an_empty_object() -> None:
    assert json_request("ListQueues", b"").members == {}


@pytest.mark.parametrize(
    ("action", "members", "asked"),
    [
        ("SendMessage", {"QueueUrl": "u"}, "MessageBody"),
        ("SendMessage", {"QueueUrl": "u", "MessageBody": ""}, "MessageBody"),
        ("SendMessage", {"MessageBody": "b"}, "QueueUrl"),
        ("CreateQueue", {}, "QueueName"),
        ("DeleteMessage", {"QueueUrl": "u"}, "ReceiptHandle"),
        ("ChangeMessageVisibility", {"QueueUrl": "u", "ReceiptHandle": "h"}, "VisibilityTimeout"),
        ("SetQueueAttributes", {"QueueUrl": "u"}, "Attribute.Name"),
        ("SetQueueAttributes", {"QueueUrl": "u", "Attributes": {}}, "Attribute.Name"),
        ("TagQueue", {"QueueUrl": "u"}, "Tags"),
        ("AddPermission", {"QueueUrl": "u", "Label": "l"}, "Actions"),
        ("StartMessageMoveTask", {}, "SourceArn"),
    ],
)
def test_what_must_be_given(action: str, members: dict[str, Any], asked: str) -> None:
    text = f"The request must contain the parameter {asked}."
    flat = {name: value for name, value in members.items() if isinstance(value, str)}
    for error in (refusal(json_request, action, members), refusal(form, action, **flat)):
        assert (error.code, error.kind.name) == (
            "MissingParameter",
            "MissingRequiredParameterException",
        )
        assert (error.message, error.query_message, error.status) == (text, text, 400)


def test_what_must_be_given_in_an_entry_is_named_with_its_entry() -> None:
    entries = [{"Id": "1", "MessageBody": "b"}, {"Id": "2"}]
    name = "SendMessageBatchRequestEntry"
    fields = {f"{name}.1.Id": "1", f"{name}.1.MessageBody": "b", f"{name}.2.Id": "2"}
    for error in (
        refusal(json_request, "SendMessageBatch", {"QueueUrl": "u", "Entries": entries}),
        refusal(form, "SendMessageBatch", QueueUrl="u", **fields),
    ):
        assert error.message == f"The request must contain the parameter {name}.2.MessageBody."


def test_a_batch_without_entries_is_left_to_the_checks() -> None:
    assert json_request("DeleteMessageBatch", {"QueueUrl": "u"}).members == {"QueueUrl": "u"}
    assert form("DeleteMessageBatch", QueueUrl="u", Entries="").members == {"QueueUrl": "u"}


@pytest.mark.parametrize(
    ("member", "value", "text"),
    [
        ("VisibilityTimeout", "5", "STRING_VALUE can not be converted to an Integer"),
        ("VisibilityTimeout", True, "TRUE_VALUE can not be converted to an Integer"),
        ("VisibilityTimeout", 1.5, "NUMBER_VALUE can not be converted to an Integer"),
        ("VisibilityTimeout", 2**31, "A number is out of range for an Integer"),
        ("VisibilityTimeout", [1], "Start of list found where not expected."),
        ("QueueUrl", 5, "NUMBER_VALUE can not be converted to a String"),
        ("QueueUrl", False, "FALSE_VALUE can not be converted to a String"),
        ("QueueUrl", {}, "Start of structure or map found where not expected."),
        ("QueueUrl", "\ud800", "A string is not valid Unicode."),
        ("AttributeNames", "All", "Unexpected field type"),
        ("AttributeNames", {"a": 1}, "Start of structure or map found where not expected."),
        ("AttributeNames", [None], "NULL_VALUE can not be converted to a String"),
    ],
)
def test_a_member_of_another_type_in_json(member: str, value: Any, text: str) -> None:
    error = refusal(json_request, "ReceiveMessage", {"QueueUrl": "u", member: value})
    assert (error.code, error.status) == ("SerializationException", 400)
    assert error.message == text


@pytest.mark.parametrize("value", [5, 5.0])
def test_a_whole_number_is_an_integer(value: float) -> None:
    body = {"QueueUrl": "u", "VisibilityTimeout": value}
    assert json_request("ReceiveMessage", body).members["VisibilityTimeout"] == 5


@pytest.mark.parametrize("value", ["x", "1.5", "1_0", "٣", str(2**31), "1" * 5_000, " 1"])
def test_a_number_that_is_none_in_query(value: str) -> None:
    error = refusal(form, "ReceiveMessage", QueueUrl="u", WaitTimeSeconds=value)
    assert (error.code, error.status) == ("MalformedInput", 400)


def test_an_empty_number_in_query_is_nothing() -> None:
    assert form("ReceiveMessage", QueueUrl="u", WaitTimeSeconds="").members == {"QueueUrl": "u"}


@pytest.mark.parametrize("value", ["a", "!!!!", "YQ=", "ü"])
def test_binary_that_is_not_base64(value: str) -> None:
    attribute = {"a": {"DataType": "Binary", "BinaryValue": value}}
    body = {"QueueUrl": "u", "MessageBody": "b", "MessageAttributes": attribute}
    assert refusal(json_request, "SendMessage", body).code == "SerializationException"
    fields = {
        "MessageAttribute.1.Name": "a",
        "MessageAttribute.1.Value.DataType": "Binary",
        "MessageAttribute.1.Value.BinaryValue": value,
    }
    error = refusal(form, "SendMessage", QueueUrl="u", MessageBody="b", **fields)
    assert error.code == "MalformedInput"


def test_half_a_surrogate_pair_in_a_body_is_for_the_checks_of_its_entry() -> None:
    body = b'{"QueueUrl":"u","MessageBody":"\\ud800"}'
    assert json_request("SendMessage", body).members["MessageBody"] == "\ud800"


# --- flattened parameters ---


def test_items_are_in_the_order_of_their_numbers() -> None:
    names = {"AttributeName.10": "c", "AttributeName.2": "b", "AttributeName.1": "a"}
    request = form("GetQueueAttributes", QueueUrl="u", **names)
    assert request.members["AttributeNames"] == ["a", "b", "c"]


def test_a_single_item_needs_no_number() -> None:
    request = form("GetQueueAttributes", QueueUrl="u", AttributeName="All")
    assert request.members["AttributeNames"] == ["All"]
    fields = {"Attribute.Name": "VisibilityTimeout", "Attribute.Value": "35"}
    request = form("SetQueueAttributes", QUEUE, **fields)
    assert request.members["Attributes"] == {"VisibilityTimeout": "35"}


@pytest.mark.parametrize("name", ["Tag", "Tags"])
def test_tags_have_two_names(name: str) -> None:
    fields = {f"{name}.1.Key": "team", f"{name}.1.Value": "red", f"{name}.2.Key": "bare"}
    request = form("TagQueue", QUEUE, **fields)
    assert request.members["Tags"] == {"team": "red", "bare": ""}


def test_a_map_item_without_a_name() -> None:
    error = refusal(form, "SetQueueAttributes", QUEUE, **{"Attribute.1.Value": "35"})
    assert error.message == "The request must contain the parameter Attribute.1.Name."


def test_names_that_mean_nothing_are_ignored() -> None:
    odd = {
        "AttributeName.x": "1",
        "AttributeName.": "1",
        "AttributeName..1": "1",
        "AttributeName.1.": "1",
        "AttributeName.-1": "1",
        "AttributeName.9999999": "1",
        "AttributeName.²": "1",
        ".": "1",
        "": "1",
        "AttributeName" + ".1" * 20: "1",
        "QueueUrl.1": "1",
    }
    assert form("GetQueueAttributes", QueueUrl="u", **odd).members == {"QueueUrl": "u"}


# --- hostile requests ---


def test_a_request_that_is_too_large() -> None:
    body = b" " * (limits.REQUEST_BYTES + 1)
    for error in (
        refusal(json_request, "ListQueues", body),
        refusal(parse, "POST", "/", "", FORM, body),
        refusal(parse, "GET", "/", "a" * (limits.QUERY_BYTES + 1), [], b""),
        refusal(parse, "GET", "/" + "a" * 10_000, "", [], b""),
    ):
        assert (error.code, error.status) == ("RequestEntityTooLarge", 413)


_FULL = limits.REQUEST_BYTES


@pytest.mark.parametrize(
    "body",
    [
        b"[" * _FULL,
        b'{"a":' * (_FULL // 5),
        b'{"a":' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"a":[' + b"[]," * 100_000 + b"[]]}",
        b'{"a":"' + b'\\"' * (_FULL // 2 - 50) + b"[{" * 40,  # a string without an end
        b'"' * (_FULL // 2) + b"[" * 100,
        b"]" * (_FULL - 100) + b"[" * 100,
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":' + b"1" * 100_000 + b"}",
        b'{"a":"\xff"}',
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"[]",
        b"null",
        b"{",
        b"\x00",
    ],
    ids=range(17),
)
def test_json_that_is_none_or_costs_too_much(body: bytes) -> None:
    """Each is refused, and none takes long: the bounds are looked at before anything is built."""
    assert refusal(json_request, "ListQueues", body).code == "SerializationException"


def test_brackets_and_commas_in_strings_do_not_count() -> None:
    text = json.dumps([{"a": [[["," * 1_000]]]}] * 50) + '"\\'
    body = {"QueueUrl": "u", "MessageBody": text}
    assert json_request("SendMessage", body).members["MessageBody"] == text


def test_of_a_key_given_twice_the_last_counts() -> None:
    assert json_request("PurgeQueue", b'{"QueueUrl":"a","QueueUrl":"b"}').members["QueueUrl"] == "b"
    body = b"Action=PurgeQueue&QueueUrl=a&QueueUrl=b"
    assert parse("POST", "/", "", FORM, body).members["QueueUrl"] == "b"


@pytest.mark.parametrize("body", [b"Action=ListQueues&a=%ff", b"Action=\xff", b"a=%ED%A0%80"])
def test_a_form_that_is_not_utf8(body: bytes) -> None:
    assert refusal(parse, "POST", "/", "", FORM, body).code == "MalformedInput"


@pytest.mark.parametrize("body", [b"a=%", b"a=100%&b=1", b"a=%4", b"%zz=1", b"%" * _FULL])
def test_a_form_with_a_stray_percent_sign(body: bytes) -> None:
    assert refusal(parse, "POST", "/", "", FORM, body).code == "MalformedInput"


def test_a_form_with_too_many_fields() -> None:
    body = b"Action=ListQueues" + b"&" * limits.FIELDS
    assert refusal(parse, "POST", "/", "", FORM, body).code == "MalformedInput"
    assert parse("POST", "/", "", FORM, body[:-1]).action == "ListQueues"
