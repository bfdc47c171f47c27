"""Bytes to requests and results to bytes, for both protocols of SQS.

                   AWS JSON 1.0                              Query
    request        POST on any path, X-Amz-Target names      form POST or GET, on / or on a queue's
                   the action, the body is an object         URL, which then is the QueueUrl
    result         an object; {} for void actions            XML, lists flattened
    error          __type and message                        ErrorResponse
    both           empty lists and maps are left out; x-amzn-RequestId; a status

    protocol = wire.protocol_of(headers)
    try:
        request = wire.parse(method, path, query, headers, body)
        response = wire.render(request, answer(request), request_id)
    except SqsError as error:
        response = wire.render_error(protocol, error, request_id)

`parse` raises nothing but SqsError, whatever it is given. Members it does not know are ignored, as
AWS does; those it knows have the type of the table, or the request is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import unquote

from fairlead.server.sqs import errors, limits, wire_json, wire_query
from fairlead.server.sqs.actions import ACTIONS, Action
from fairlead.server.sqs.errors import SqsError

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
ProtocolName: TypeAlias = Literal["json", "query"]

_TARGET = "AmazonSQS."
_SHOWN = 80  # characters of an unknown action that the refusal repeats
_ROOM = 8 * 1024  # bytes of a path, and of a trace header
_PICKED = (b"content-type", b"x-amz-target", b"x-amzn-trace-id")


@dataclass(frozen=True, slots=True)
class Request:
    protocol: ProtocolName
    action: str
    members: dict[str, Any]  # by the table: str, int, bytes, list, dict
    queue_path: str | None  # "/123456789012/orders" where the request went there, else None
    trace: str | None  # X-Amzn-Trace-Id: becomes the message's AWSTraceHeader


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Refused(Protocol):
    """What can be rendered as an error: an SqsError, or a refusal of the signature."""

    @property
    def code(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def status(self) -> int: ...
    @property
    def message(self) -> str: ...


def protocol_of(headers: Headers) -> ProtocolName:
    """By which protocol a request is to be read and, whatever is wrong with it, answered."""
    return _protocol(_picked(headers))


def parse(method: str, path: bytes, query: bytes, headers: Headers, body: bytes) -> Request:
    """Read a request; everything is as it was sent, path and query still percent-encoded."""
    picked = _picked(headers)
    protocol = _protocol(picked)
    if len(body) > limits.REQUEST_BYTES or len(query) > limits.QUERY_BYTES or len(path) > _ROOM:
        raise errors.REQUEST_TOO_LARGE()
    queue_path = unquote(path, errors="replace") if path.strip(b"/") else None
    if protocol == "json":
        action = _json_action(method, picked.get("x-amz-target", ""))
        members = wire_json.parse(action, body)
    else:
        fields = _query_fields(method, query, body)
        action = _query_action(fields, queue_path)
        members = wire_query.parse(action, fields, queue_path)
    return Request(protocol, action.name, members, queue_path, _trace(picked))


def render(request: Request, result: Mapping[str, Any] | None, request_id: str) -> Response:
    """Answer with what the action gives: members by the table, None and empty ones are left out.

    A void action's result is None. A member that the table lacks is a mistake of ours: KeyError.
    """
    action = ACTIONS[request.action]
    if request.protocol == "json":
        body = wire_json.render(action, result or {})
    else:
        body = wire_query.render(action, result or {}, request_id)
    return _response(request.protocol, 200, body, request_id)


def render_error(
    request: Request | ProtocolName, error: SqsError | Refused, request_id: str
) -> Response:
    protocol = request if isinstance(request, str) else request.protocol
    if protocol == "query":
        message = error.query_message if isinstance(error, SqsError) else error.message
        body = wire_query.render_error(error.code, error.status, message, request_id)
        return _response(protocol, error.status, body, request_id)
    body = wire_json.render_error(error.type, error.message)
    response = _response(protocol, error.status, body, request_id)
    fault = "Sender" if error.status < 500 else "Receiver"
    response.headers.append(("x-amzn-query-error", f"{error.code};{fault}"))
    return response


def _response(protocol: ProtocolName, status: int, body: bytes, request_id: str) -> Response:
    content = wire_json.CONTENT_TYPE if protocol == "json" else wire_query.CONTENT_TYPE
    return Response(status, [("Content-Type", content), ("x-amzn-RequestId", request_id)], body)


def _picked(headers: Headers) -> dict[str, str]:
    """The headers that matter here. Doubled ones are joined, as HTTP says: no such action."""
    picked: dict[str, str] = {}
    for raw_name, raw_value in headers:
        if raw_name.lower() in _PICKED:
            name, value = raw_name.lower().decode(), raw_value.decode("latin-1")
            picked[name] = f"{picked[name]},{value}" if name in picked else value
    return picked


def _trace(picked: Mapping[str, str]) -> str | None:
    """What a proxy adds on the way is no reason to refuse a message: an odd one is left out."""
    trace = picked.get("x-amzn-trace-id", "")
    sound = trace and trace.isascii() and trace.isprintable() and len(trace) < _ROOM
    return trace if sound else None


def _protocol(picked: Mapping[str, str]) -> ProtocolName:
    content = picked.get("content-type", "").lstrip().lower()
    if content.startswith("application/x-amz-json-"):
        return "json"
    if content.startswith("application/x-www-form-urlencoded"):
        return "query"
    return "json" if "x-amz-target" in picked else "query"


def _json_action(method: str, target: str) -> Action:
    if method != "POST" or not target:
        raise errors.UNKNOWN_OPERATION()
    action = ACTIONS.get(target.removeprefix(_TARGET)) if target.startswith(_TARGET) else None
    if action is None:
        raise _invalid_action(target.removeprefix(_TARGET))
    return action


def _query_fields(method: str, query: bytes, body: bytes) -> dict[str, str]:
    if method == "GET":
        return wire_query.fields(query)
    if method != "POST":
        raise errors.UNKNOWN_OPERATION()
    # A signature may be in the query string of a POST; what both have, the body decides.
    return wire_query.fields(query) | wire_query.fields(body)


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
