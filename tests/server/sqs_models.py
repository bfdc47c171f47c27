"""botocore's model of SQS, as it is installed, and the same one spoken in the Query protocol.

AWS's SDKs moved SQS from Query to JSON in November 2023, and their model lost the names that things
have in Query. Those are written down here, as the last Query model had them, so that botocore's own
Query serializer and parser can be the counterpart of ours.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import botocore.loaders
from botocore import parsers, serialize
from botocore.awsrequest import HeadersDict, create_request_object, prepare_request_dict
from botocore.model import OperationModel, ServiceModel

from fairturn.server.sqs.wire import protocols

LIST_ITEMS = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "BinaryList": "BinaryListValue",
    "ChangeMessageVisibilityBatchRequestEntryList": "ChangeMessageVisibilityBatchRequestEntry",
    "ChangeMessageVisibilityBatchResultEntryList": "ChangeMessageVisibilityBatchResultEntry",
    "DeleteMessageBatchRequestEntryList": "DeleteMessageBatchRequestEntry",
    "DeleteMessageBatchResultEntryList": "DeleteMessageBatchResultEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageList": "Message",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "QueueUrlList": "QueueUrl",
    "SendMessageBatchRequestEntryList": "SendMessageBatchRequestEntry",
    "SendMessageBatchResultEntryList": "SendMessageBatchResultEntry",
    "StringList": "StringListValue",
    "TagKeyList": "TagKey",
}
MAP_KEYS = {
    "MessageBodyAttributeMap": "Name",
    "MessageBodySystemAttributeMap": "Name",
    "MessageSystemAttributeMap": "Name",
    "QueueAttributeMap": "Name",
    "TagMap": "Key",
}
MAP_MEMBERS = {
    "Attributes": "Attribute",
    "MessageAttributes": "MessageAttribute",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "tags": "Tag",
    "Tags": "Tag",
}
LIST_MEMBERS = {"StringListValues": "StringListValue", "BinaryListValues": "BinaryListValue"}


@cache
def json_model() -> ServiceModel:
    return ServiceModel(_description(), "sqs")


@cache
def query_model() -> ServiceModel:
    description = copy.deepcopy(_description())
    metadata = description["metadata"]
    metadata |= {"protocol": "query", "protocols": ["query"]}
    metadata["xmlNamespace"] = "http://queue.amazonaws.com/doc/2012-11-05/"
    for key in ("awsQueryCompatible", "jsonVersion", "targetPrefix"):
        del metadata[key]
    shapes = description["shapes"]
    for name, item in LIST_ITEMS.items():
        shapes[name]["member"]["locationName"] = item
    for name, key in MAP_KEYS.items():
        shapes[name]["key"]["locationName"] = key
        shapes[name]["value"]["locationName"] = "Value"
    for shape in shapes.values():
        for name, member in shape.get("members", {}).items():
            target = shapes[member["shape"]]["type"]
            if target == "map":
                member["locationName"] = MAP_MEMBERS[name]
            elif name in LIST_MEMBERS:
                member["locationName"] = LIST_MEMBERS[name]
    for operation in description["operations"].values():
        if "output" in operation:
            operation["output"]["resultWrapper"] = operation["name"] + "Result"
    return ServiceModel(description, "sqs")


def _description() -> dict[str, Any]:
    return botocore.loaders.Loader().load_service_model("sqs", "service-2")


def model(protocol: str) -> ServiceModel:
    return json_model() if protocol == "json" else query_model()


def operation(protocol: str, action: str) -> OperationModel:
    return model(protocol).operation_model(action)


def sent(
    protocol: str, action: str, parameters: dict[str, Any], url: str = "http://localhost:9324/"
) -> protocols.Request:
    """What our side reads when botocore sends this."""
    serializer = serialize.create_serializer(protocol, include_validation=False)
    request = serializer.serialize_to_request(parameters, operation(protocol, action))
    prepare_request_dict(request, url)
    prepared = create_request_object(request).prepare()
    parts = urlsplit(prepared.url)
    return protocols.parse(
        prepared.method,
        parts.path.encode(),
        parts.query.encode(),
        {to_bytes(name.lower()): to_bytes(value) for name, value in prepared.headers.items()},
        to_bytes(prepared.body or b""),
    )


def to_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def plain(response: protocols.Response) -> dict[str, str]:
    """The headers as texts."""
    return {name.decode(): value.decode() for name, value in response.headers}


def received(protocol: str, action: str, response: protocols.Response) -> dict[str, Any]:
    """What botocore reads when our side answers this."""
    parser = parsers.create_parser(protocol)
    return parser.parse(
        {
            "status_code": response.status,
            "headers": HeadersDict(plain(response)),
            "body": response.body,
        },
        operation(protocol, action).output_shape,
    )
