"""The Query protocol: members of an action from flattened parameters, its result as XML."""

from __future__ import annotations

import binascii
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

from fairturn.server.sqs.wire.action_table import Action, ListOf, MapOf, Scalar, Structure, Type
from fairturn.sqs import errors, limits
from fairturn.sqs.characters import ILLEGAL
from fairturn.sqs.errors import SqsError

_NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
_HEAD = '<?xml version="1.0"?>'
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_OTHER_NAMES = {"Tags": "Tag"}  # AWS's own examples use both names
_SLICE = 64 * 1024
_STRAY = re.compile(rb"%(?![0-9A-Fa-f]{2})")

# Parameters by the parts of their names: A.1.Name=x is {"A": {"1": {"Name": {"": "x"}}}}.
Tree: TypeAlias = dict[str, Any]


# --- parsing ---


def fields(encoded: bytes) -> dict[str, str]:
    """Return the parameters of a query string or a form; if one is repeated, the last counts."""
    if _STRAY.search(encoded) is not None:
        raise errors.MALFORMED_INPUT("A % is not followed by two hexadecimal digits.")
    if encoded.count(b"&") >= limits.FIELDS:
        raise errors.MALFORMED_INPUT("The request has too many parameters.")
    found: dict[str, str] = {}
    try:
        for pair in encoded.split(b"&"):
            name, _, value = pair.partition(b"=")
            if name:
                found[_plain(name)] = _plain(value)
    except UnicodeError as error:
        raise errors.MALFORMED_INPUT("The parameters are not valid UTF-8.") from error
    return found


def _plain(encoded: bytes) -> str:
    encoded = encoded.replace(b"+", b" ")
    if b"%" not in encoded:
        return encoded.decode()
    # In slices: the decoder creates an object for each %XX, twenty times the memory of the text.
    pieces: list[bytes] = []
    start = 0
    while start < len(encoded):
        end = start + _SLICE
        cut = encoded.rfind(b"%", end - 2, end)
        if cut >= 0:
            end = cut  # do not split a %XX
        pieces.append(unquote_to_bytes(encoded[start:end]))
        start = end
    return b"".join(pieces).decode()


def parse(action: Action, given: Mapping[str, str], queue_path: str | None) -> dict[str, Any]:
    tree = _tree(action.input, given)
    if (
        queue_path is not None
        and "QueueUrl" in action.input.members
        and not _text(tree, "QueueUrl")
    ):
        tree["QueueUrl"] = {"": queue_path}
    return _structure(action.input, tree, "")


def _tree(input: Structure, given: Mapping[str, str]) -> Tree:
    known = {member.query for member in input.members.values()}
    tree: Tree = {}
    for name, value in given.items():
        parts = name.split(".", limits.KEY_PARTS)
        parts[0] = _OTHER_NAMES.get(parts[0], parts[0])
        if parts[0] not in known or len(parts) > limits.KEY_PARTS or not all(parts):
            continue
        node = tree
        for part in parts:
            node = node.setdefault(part, {})
        node[""] = value
    return tree


def _text(tree: Tree, name: str) -> str | None:
    return tree.get(name, {}).get("")


def _structure(structure: Structure, tree: Tree, where: str) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, member in structure.members.items():
        node = tree.get(member.query)
        value = None if node is None else _value(member.type, node, f"{where}{member.query}")
        if value is not None and (value != "" or not member.required_on_wire):
            members[name] = value
        elif member.required_on_wire:
            raise errors.missing(where + member.name_in_error)
    return members


def _value(type: Type, node: Tree, where: str) -> Any:
    """Return None for an absent value, such as a list or map without items."""
    match type:
        case Scalar():
            return _scalar(type, node.get(""), where)
        case ListOf():
            return _list(type, node, where) or None
        case MapOf():
            return dict(_pairs(type, node, where)) or None
        case Structure():
            return _structure(type, node, f"{where}.")


def _list(type: ListOf, node: Tree, where: str) -> list[Any]:
    items: list[Any] = []
    if node.get(""):  # AttributeName=All, without a number
        items.append(_value(type.item, {"": node[""]}, where))
    for number, child in _numbered(node):
        value = _value(type.item, child, f"{where}.{number}")
        if value is not None:
            items.append(value)
    return items


def _pairs(type: MapOf, node: Tree, where: str) -> Iterator[tuple[str, Any]]:
    if type.key_name in node:  # Attribute.Name=…&Attribute.Value=…, without a number
        yield _pair(type, node, where)
    for number, child in _numbered(node):
        yield _pair(type, child, f"{where}.{number}")


def _pair(type: MapOf, node: Tree, where: str) -> tuple[str, Any]:
    key = _text(node, type.key_name)
    if not key:
        raise errors.missing(f"{where}.{type.key_name}")
    value = _value(type.value, node.get(type.value_name, {}), f"{where}.{type.value_name}")
    return key, "" if value is None else value


def _numbered(node: Tree) -> list[tuple[int, Tree]]:
    """Return the items of a list or map in the order of their numbers, which may have gaps."""
    parts = [
        part
        for part in node
        if part.isascii() and part.isdigit() and len(part) <= limits.INDEX_DIGITS
    ]
    return [(int(part), node[part]) for part in sorted(parts, key=int)]


def _scalar(type: Scalar, text: str | None, where: str) -> Any:
    if text is None or type.kind == "string":
        return text
    if type.kind == "blob":
        return _blob(text, where)
    if not text:
        return None
    if type.kind == "boolean":
        if text.lower() not in ("true", "false"):
            raise errors.MALFORMED_INPUT(f"{where} must be true or false.")
        return text.lower() == "true"
    if _INTEGER.fullmatch(text) is None or not -type.bound <= int(text) < type.bound:
        raise errors.MALFORMED_INPUT(f"{where} must be an integer.")
    return int(text)


def _blob(text: str, where: str) -> bytes:
    # A client that forgot to encode "+" sends a blank, which Base64 does not have.
    try:
        return binascii.a2b_base64(text.replace(" ", "+"), strict_mode=True)
    except ValueError as error:
        raise errors.MALFORMED_INPUT(f"{where} is not valid Base64.") from error


# --- rendering ---


def render(action: Action, result: Mapping[str, Any], request_id: str) -> bytes:
    parts = [f'{_HEAD}<{action.name}Response xmlns="{_NAMESPACE}">']
    if action.output is not None:
        inside = "".join(_members(action.output, result))
        tag = f"{action.name}Result"
        parts.append(f"<{tag}>{inside}</{tag}>" if inside else f"<{tag}/>")
    parts.append(f"<ResponseMetadata>{_element('RequestId', request_id)}</ResponseMetadata>")
    parts.append(f"</{action.name}Response>")
    return "".join(parts).encode()


def render_error(error: SqsError, request_id: str) -> bytes:
    if error.kind is errors.UNKNOWN_OPERATION:
        return b"<UnknownOperationException/>\n"
    return (
        f'{_HEAD}<ErrorResponse xmlns="{_NAMESPACE}"><Error>{_element("Type", error.fault)}'
        f"{_element('Code', error.code)}{_element('Message', error.query_message)}"
        f"<Detail/></Error>{_element('RequestId', request_id)}</ErrorResponse>"
    ).encode()


def _members(structure: Structure, value: Mapping[str, Any]) -> Iterator[str]:
    for name, item in value.items():
        member = structure.members[name]
        if item is not None:
            yield from _elements(member.type, member.query, item)


def _elements(type: Type, name: str, value: Any) -> Iterator[str]:
    match type:
        case Scalar():
            yield _element(name, _shown(type, value))
        case ListOf():
            for item in value:
                yield from _elements(type.item, name, item)
        case MapOf():
            for key, item in value.items():
                inside = "".join(_elements(type.value, type.value_name, item))
                yield f"<{name}>{_element(type.key_name, key)}{inside}</{name}>"
        case Structure():
            yield f"<{name}>{''.join(_members(type, value))}</{name}>"


def _shown(type: Scalar, value: Any) -> str:
    if type.kind == "blob":
        return b64encode(value).decode()
    if type.kind == "boolean":
        return "true" if value else "false"
    return str(value)


def _element(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>"


def escape(text: str) -> str:
    """Escape a text for XML. A parser would read a bare carriage return as a line feed.

    Characters that XML does not allow, not even escaped, become U+FFFD: a message that was sent by
    the library may have them, and the rest of the answer must stay valid.
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = text.replace("\r", "&#xD;")
    return ILLEGAL.sub("\ufffd", text)
