"""botocore sends, we read; we answer, botocore reads: every action, both protocols."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from fairturn.server.sqs.wire import protocols
from fairturn.server.sqs.wire.action_table import ACTIONS, ListOf, MapOf, Scalar, Structure, Type
from fairturn.sqs import errors, md5
from fairturn.sqs.characters import ILLEGAL
from tests.server.sqs_models import plain, received, sent, to_bytes

PROTOCOLS = ("json", "query")
ID = "b5293cb5-d306-4a17-9048-b263635abe42"

anything = st.text(max_size=12)
# What XML can carry, with the characters that need care in it.
legal = st.text(
    st.sampled_from("\r\n\t&<>\"' ]") | st.characters(exclude_categories=["Cs"]), max_size=12
).map(lambda text: ILLEGAL.sub("", text))


def values(type: Type, text: st.SearchStrategy[str], given: bool = False) -> st.SearchStrategy[Any]:
    """Anything a member of this type may be; `given`: as what a request must have, not empty."""
    match type:
        case Scalar(kind="string"):
            return text.filter(bool) if given else text
        case Scalar(kind="boolean"):
            return st.booleans()
        case Scalar(kind="blob"):
            return st.binary(max_size=12)
        case Scalar():
            return st.integers(-type.bound, type.bound - 1)
        case ListOf():
            return st.lists(values(type.item, text), min_size=int(given), max_size=3)
        case MapOf():
            keys = text.filter(bool)
            return st.dictionaries(keys, values(type.value, text), min_size=int(given), max_size=3)
        case Structure():
            required = {
                name: values(member.type, text, member.required_on_wire)
                for name, member in type.members.items()
                if member.required
            }
            optional = {
                name: values(member.type, text)
                for name, member in type.members.items()
                if not member.required
            }
            return st.fixed_dictionaries(required, optional=optional)


def without_empty(value: Any) -> Any:
    """Lists and maps that are empty are not there: Query cannot say it, and answers must not."""
    if isinstance(value, dict):
        inner = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item != [] and item != {}}
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    return value


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("action", sorted(ACTIONS))
@settings(max_examples=20)
@given(data=st.data())
def test_what_botocore_sends_is_what_we_read(
    action: str, protocol: str, data: st.DataObject
) -> None:
    parameters = data.draw(values(ACTIONS[action].input, anything))
    request = sent(protocol, action, parameters)
    assert (request.protocol, request.action) == (protocol, action)
    if protocol == "json":
        assert request.members == parameters
    else:
        assert request.members == without_empty(parameters)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("action", sorted(ACTIONS))
@settings(max_examples=20)
@given(data=st.data())
def test_what_we_answer_is_what_botocore_reads(
    action: str, protocol: str, data: st.DataObject
) -> None:
    gives = ACTIONS[action].output
    result = None if gives is None else data.draw(values(gives, legal))
    response = protocols.render(protocols.Request(protocol, action, {}), result, ID)
    parsed = received(protocol, action, response)
    metadata = parsed.pop("ResponseMetadata")
    assert parsed == without_empty(result or {})
    assert metadata["RequestId"] == ID
    assert metadata["HTTPStatusCode"] == 200


# In Query an unknown operation has a body of its own, which is no error's: test_sqs_requests.py.
ERRORS = [
    (kind, protocol)
    for kind in errors.KINDS
    for protocol in PROTOCOLS
    if (kind, protocol) != (errors.UNKNOWN_OPERATION, "query")
]


@pytest.mark.parametrize(
    ("kind", "protocol"), ERRORS, ids=[f"{kind.name}-{protocol}" for kind, protocol in ERRORS]
)
def test_every_error_is_what_botocore_reads(kind: errors.Kind, protocol: str) -> None:
    error = kind() if kind.default else kind("Because of <a> & \r\n “b”.")
    response = protocols.render_error(protocol, error, ID)
    parsed = received(protocol, "SendMessage", response)
    shown = parsed["Error"]
    assert response.status == kind.status
    assert shown["Code"] == kind.code
    assert shown["Type"] == ("Receiver" if kind.status >= 500 else "Sender")
    assert parsed["ResponseMetadata"]["RequestId"] == ID
    if protocol == "json":
        assert shown["QueryErrorCode"] == kind.name
        assert shown["Message"] == error.message
    else:
        assert shown["Message"] == error.query_message


def client(answers: dict[str, protocols.Response], seen: list[protocols.Request]) -> Any:
    """An unmodified boto3 client whose connection is our wire: what it sends is parsed."""
    client = boto3.client(
        "sqs",
        region_name="eu-west-1",
        endpoint_url="http://localhost:9324",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}),
    )

    def answer(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        headers = {to_bytes(name.lower()): to_bytes(text) for name, text in request.headers.items()}
        parsed = protocols.parse(request.method, b"/", b"", headers, to_bytes(request.body))
        seen.append(parsed)
        response = answers[parsed.action]
        raw = type("Raw", (), {"stream": lambda self, **_: iter([response.body])})()
        return AWSResponse(request.url, response.status, plain(response), raw)

    client.meta.events.register("before-send.sqs.*", answer)
    return client


def test_boto3_raises_the_modelled_exception() -> None:
    seen: list[protocols.Request] = []
    gone = protocols.render_error("json", errors.QUEUE_DOES_NOT_EXIST(), ID)
    sqs = client({"GetQueueUrl": gone}, seen)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as caught:
        sqs.get_queue_url(QueueName="orders")
    assert seen[0].members == {"QueueName": "orders"}
    assert caught.value.response["Error"] == {
        "Code": "AWS.SimpleQueueService.NonExistentQueue",
        "QueryErrorCode": "QueueDoesNotExist",
        "Message": "The specified queue does not exist.",
        "Type": "Sender",
    }


def test_boto3_shows_a_refused_batch_entry() -> None:
    request = protocols.Request("json", "SendMessageBatch", {})
    refused = errors.INVALID_MESSAGE_CONTENTS()
    result = {
        "Successful": [{"Id": "a", "MessageId": "1", "MD5OfMessageBody": md5.of_body("x")}],
        "Failed": [refused.entry("b")],
    }
    sqs = client({"SendMessageBatch": protocols.render(request, result, ID)}, [])
    got = sqs.send_message_batch(
        QueueUrl="http://localhost:9324/1/orders",
        Entries=[{"Id": "a", "MessageBody": "x"}, {"Id": "b", "MessageBody": "\x01"}],
    )
    assert got["Failed"] == [
        {
            "Id": "b",
            "SenderFault": True,
            "Code": "InvalidMessageContents",
            "Message": refused.message,
        }
    ]


def test_boto3_shows_a_code_that_is_no_shape_of_the_model() -> None:
    refused = protocols.render_error("json", errors.missing("MessageBody"), ID)
    sqs = client({"SendMessage": refused}, [])
    with pytest.raises(ClientError) as caught:
        sqs.send_message(QueueUrl="http://localhost:9324/1/orders", MessageBody="x")
    assert caught.value.response["Error"]["Code"] == "MissingParameter"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
