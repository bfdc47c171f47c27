"""Requests from bytes and results to bytes, for both protocols of SQS.

                   AWS JSON 1.0                              Query
    request        POST on any path, X-Amz-Target names      form POST or GET, on / or on a queue's
                   the action, the body is an object         URL, which then is the QueueUrl
    result         an object; {} for void actions            XML, lists flattened
    error          __type and message                        ErrorResponse
    both           empty lists and maps are left out; x-amzn-RequestId; a status

    headers = protocols.joined(pairs)
    try:
        request = protocols.parse(method, path, query, headers, body)
        response = protocols.render(request, answer(request), request_id)
    except SqsError as error:
        response = protocols.render_error(protocols.protocol_of(headers), error, request_id)

`parse` raises only SqsError, for any input. Unknown members are ignored, as AWS does; known members
must have the type of the table, or the request is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

from fairturn.server.sqs.wire import json_protocol, query_protocol
from fairturn.server.sqs.wire.action_table import ACTIONS, Action
from fairturn.sqs import errors, limits
from fairturn.sqs.errors import SqsError

Headers: TypeAlias = Mapping[bytes, bytes]  # by name, in lower case
ProtocolName: TypeAlias = Literal["json", "query"]

_CONTENT_TYPES = {
    "json": (b"content-type", b"application/x-amz-json-1.0"),
    "query": (b"content-type", b"text/xml"),
}
_TARGET = b"AmazonSQS."
_ACTIONS_BY_TARGET = {_TARGET + name.encode(): action for name, action in ACTIONS.items()}
_SHOWN = 80  # characters of an unknown action that the error repeats
_ROOM = 8 * 1024  # bytes of a path, and of a trace header, at most


@dataclass(frozen=True, slots=True)
class Request:
    protocol: ProtocolName
    action: str
    members: dict[str, Any]  # by the table: str, int, bytes, list, dict
    trace: str | None = None  # X-Amzn-Trace-Id


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: list[tuple[bytes, bytes]]  # names in lower case, as ASGI requires
    body: bytes


def joined(pairs: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Return headers by name. Repeated ones are joined, as HTTP says: two actions are none."""
    headers: dict[bytes, bytes] = {}
    for name, value in pairs:
        headers[name] = headers[name] + b"," + value if name in headers else value
    return headers


def protocol_of(headers: Headers) -> ProtocolName:
    """Return the protocol of a request and of its answer, also for invalid requests."""
    content = headers.get(b"content-type", b"").lstrip().lower()
    if content.startswith(b"application/x-amz-json-"):
        return "json"
    if content.startswith(b"application/x-www-form-urlencoded"):
        return "query"
    return "json" if b"x-amz-target" in headers else "query"


def parse(method: str, path: bytes, query: bytes, headers: Headers, body: bytes) -> Request:
    """Read a request. All arguments are as they were sent: path and query percent-encoded."""
    protocol = protocol_of(headers)
    if len(body) > limits.REQUEST_BYTES or len(query) > limits.QUERY_BYTES or len(path) > _ROOM:
        raise errors.REQUEST_TOO_LARGE()
    if protocol == "json":
        target = headers.get(b"x-amz-target", b"")
        if method != "POST" or not target:
            raise errors.UNKNOWN_OPERATION()
        action = _ACTIONS_BY_TARGET.get(target)
        if action is None:
            raise _invalid_action(target.removeprefix(_TARGET).decode("latin-1"))
        members = json_protocol.parse(action, body)
    else:
        queue_path = unquote(path, errors="replace") if path.strip(b"/") else None
        fields = _query_fields(method, query, body)
        action = _query_action(fields, queue_path)
        members = query_protocol.parse(action, fields, queue_path)
    trace = headers.get(b"x-amzn-trace-id")
    return Request(protocol, action.name, members, _trace(trace) if trace else None)


def render(request: Request, result: Mapping[str, Any] | None, request_id: str) -> Response:
    """Render the result of an action, by the table; None and empty members are left out.

    A void action's result is None. A member that is not in the table is a bug: KeyError.
    """
    action = ACTIONS[request.action]
    if request.protocol == "json":
        body = json_protocol.render(action, result or {})
    else:
        body = query_protocol.render(action, result or {}, request_id)
    headers = [_CONTENT_TYPES[request.protocol], (b"x-amzn-requestid", request_id.encode())]
    return Response(200, headers, body)


def render_error(protocol: ProtocolName, error: SqsError, request_id: str) -> Response:
    headers = [_CONTENT_TYPES[protocol], (b"x-amzn-requestid", request_id.encode())]
    if protocol == "query":
        body = query_protocol.render_error(error, request_id)
    else:
        body = json_protocol.render_error(error)
        headers.append((b"x-amzn-query-error", f"{error.code};{error.fault}".encode()))
    return Response(error.status, headers, body)


def _trace(sent: bytes) -> str | None:
    """Return the trace header. An invalid one is ignored: a proxy may have added it."""
    trace = sent.decode("latin-1")
    return trace if trace.isascii() and trace.isprintable() and len(trace) < _ROOM else None


def _query_fields(method: str, query: bytes, body: bytes) -> dict[str, str]:
    if method == "GET":
        return query_protocol.fields(query)
    if method != "POST":
        raise errors.UNKNOWN_OPERATION()
    # A POST may have its signature in the query string; of fields in both, the body's count.
    return query_protocol.fields(query) | query_protocol.fields(body)


def _query_action(fields: Mapping[str, str], queue_path: str | None) -> Action:
    name = fields.get("Action")
    if not name:
        raise errors.UNKNOWN_OPERATION()
    action = ACTIONS.get(name)
    if action is None or (queue_path is not None and not action.at_queues):
        raise _invalid_action(name)
    return action


def _invalid_action(name: str) -> SqsError:
    return errors.INVALID_ACTION(f"The action {name[:_SHOWN]} is not valid for this endpoint.")
