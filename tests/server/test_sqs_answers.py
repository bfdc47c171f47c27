"""Answers to the letter: which bytes a result or a refusal is, in both protocols."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairturn.server.sqs.wire import protocols
from fairturn.sqs import errors

ID = "b5293cb5-d306-4a17-9048-b263635abe42"
NAMESPACE = 'xmlns="http://queue.amazonaws.com/doc/2012-11-05/"'


def answer(protocol: Any, action: str, result: dict[str, Any] | None) -> protocols.Response:
    return protocols.render(protocols.Request(protocol, action, {}), result, ID)


def test_json_answers_to_the_letter() -> None:
    response = answer("json", "SendMessage", {"MessageId": "1", "SequenceNumber": None})
    assert response == protocols.Response(
        200,
        [(b"content-type", b"application/x-amz-json-1.0"), (b"x-amzn-requestid", ID.encode())],
        b'{"MessageId":"1"}',
    )
    for result in (None, {}):
        assert answer("json", "DeleteMessage", result).body == b"{}"


@pytest.mark.parametrize(
    ("action", "result"),
    [
        ("ReceiveMessage", {"Messages": []}),
        ("ListQueues", {"QueueUrls": [], "NextToken": None}),
        ("ListQueueTags", {"Tags": {}}),
        ("GetQueueAttributes", {"Attributes": {}}),
        ("DeleteMessageBatch", {"Successful": [], "Failed": []}),
    ],
)
def test_empty_collections_are_left_out(action: str, result: dict[str, Any]) -> None:
    assert answer("json", action, result).body == b"{}"
    assert answer("query", action, result).body.decode() == (
        f'<?xml version="1.0"?><{action}Response {NAMESPACE}><{action}Result/>'
        f"<ResponseMetadata><RequestId>{ID}</RequestId></ResponseMetadata></{action}Response>"
    )


def test_empty_strings_zero_and_false_are_not_left_out() -> None:
    result = {"Failed": [{"Id": "", "SenderFault": False, "Code": "c", "Message": ""}]}
    assert json.loads(answer("json", "DeleteMessageBatch", result).body) == result
    assert b"<Id></Id><SenderFault>false</SenderFault>" in (
        answer("query", "DeleteMessageBatch", result).body
    )
    moved = {"ApproximateNumberOfMessagesMoved": 0}
    assert json.loads(answer("json", "CancelMessageMoveTask", moved).body) == moved


def test_query_answers_to_the_letter() -> None:
    result = {
        "Messages": [
            {
                "MessageId": "1",
                "Body": "a<b>&\r\n\"'",
                "Attributes": {"SenderId": "me"},
                "MessageAttributes": {"k": {"DataType": "Binary", "BinaryValue": b"\x00\xff"}},
            },
            {"MessageId": "2"},
        ]
    }
    response = answer("query", "ReceiveMessage", result)
    assert response.headers == [(b"content-type", b"text/xml"), (b"x-amzn-requestid", ID.encode())]
    assert response.body.decode() == (
        f'<?xml version="1.0"?><ReceiveMessageResponse {NAMESPACE}><ReceiveMessageResult>'
        "<Message><MessageId>1</MessageId><Body>a&lt;b&gt;&amp;&#xD;\n\"'</Body>"
        "<Attribute><Name>SenderId</Name><Value>me</Value></Attribute>"
        "<MessageAttribute><Name>k</Name><Value><DataType>Binary</DataType>"
        "<BinaryValue>AP8=</BinaryValue></Value></MessageAttribute></Message>"
        "<Message><MessageId>2</MessageId></Message></ReceiveMessageResult>"
        f"<ResponseMetadata><RequestId>{ID}</RequestId></ResponseMetadata>"
        "</ReceiveMessageResponse>"
    )


def test_a_void_action_has_no_result_in_query() -> None:
    assert answer("query", "DeleteMessage", None).body.decode() == (
        f'<?xml version="1.0"?><DeleteMessageResponse {NAMESPACE}>'
        f"<ResponseMetadata><RequestId>{ID}</RequestId></ResponseMetadata></DeleteMessageResponse>"
    )


def test_a_member_that_the_table_lacks_is_a_mistake() -> None:
    for protocol in ("json", "query"):
        with pytest.raises(KeyError):
            answer(protocol, "SendMessage", {"Messageid": "1"})


def test_what_xml_cannot_carry_is_replaced() -> None:
    body = answer("query", "ReceiveMessage", {"Messages": [{"Body": "\x00a\ud800\ufffe"}]}).body
    assert "<Body>\ufffda\ufffd\ufffd</Body>".encode() in body
    same = answer("json", "ReceiveMessage", {"Messages": [{"Body": "\x00a\ud800ü"}]}).body
    assert json.loads(same) == {"Messages": [{"Body": "\x00a\ud800ü"}]}


def test_errors_to_the_letter() -> None:
    error = errors.QUEUE_DOES_NOT_EXIST()
    assert protocols.render_error("json", error, ID) == protocols.Response(
        400,
        [
            (b"content-type", b"application/x-amz-json-1.0"),
            (b"x-amzn-requestid", ID.encode()),
            (b"x-amzn-query-error", b"AWS.SimpleQueueService.NonExistentQueue;Sender"),
        ],
        b'{"__type":"com.amazonaws.sqs#QueueDoesNotExist",'
        b'"message":"The specified queue does not exist."}',
    )
    assert protocols.render_error("query", error, ID) == protocols.Response(
        400,
        [(b"content-type", b"text/xml"), (b"x-amzn-requestid", ID.encode())],
        f'<?xml version="1.0"?><ErrorResponse {NAMESPACE}><Error><Type>Sender</Type>'
        "<Code>AWS.SimpleQueueService.NonExistentQueue</Code><Message>The specified queue does not "
        f"exist for this wsdl version.</Message><Detail/></Error><RequestId>{ID}</RequestId>"
        "</ErrorResponse>".encode(),
    )


def test_a_refused_signature_can_be_rendered() -> None:
    refused = errors.UNKNOWN_KEY()
    response = protocols.render_error("json", refused, ID)
    assert response.status == 403
    assert (b"x-amzn-query-error", b"InvalidClientTokenId;Sender") in response.headers
    assert json.loads(response.body)["__type"].endswith("#UnrecognizedClientException")
    assert b"<Code>InvalidClientTokenId</Code>" in protocols.render_error("query", refused, ID).body
