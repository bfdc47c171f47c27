"""SQS's identifiers of a message, computed from the core's lease, and back.

    MessageId        a UUID (version 8: "free form") with the message's id
    ReceiptHandle    URL-safe base64 of id, token, and the times of the send and the receive
    SequenceNumber   the id in twenty digits, ascending like the ids

Nothing is stored for them, so any process can read those of another. They are no secrets: a receipt
handle is used only in the queue of its request, and the request needs permission for that queue.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from binascii import a2b_base64
from struct import Struct
from typing import NamedTuple

from fairturn.sqs import errors

_SHAPE = Struct(">2sQQQI")  # 30 bytes: whole groups of base64, so that each handle is unique
_MARK = b"\xf1\x02"  # ours, second version
_HANDLE = re.compile(r"[A-Za-z0-9_-]{40}", re.ASCII)
_UUID = re.compile(r"0{8}-0{4}-8([0-9a-f]{3})-8([0-9a-f]{3})-([0-9a-f]{12})", re.ASCII)
_ID_END = 2**63  # no database allows larger ids
_TOKEN_END = 2**53
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_SHOWN = 1_000  # characters of a bad receipt handle that the error repeats


class Receipt(NamedTuple):
    """The content of a receipt handle."""

    id: int
    token: int
    created: int  # of the message, in microseconds: after a failover its id may be another's
    received: int  # seconds since the epoch


def message_id(id: int) -> str:
    """Return the MessageId. After its two zero groups a UUID has 72 free bits; an id has 63."""
    if id < 2**48:  # a fast path for all ids in practice
        return f"00000000-0000-8000-8000-{id:012x}"
    return f"00000000-0000-8{id >> 60:03x}-8{id >> 48 & 0xFFF:03x}-{id & 0xFFFF_FFFF_FFFF:012x}"


def id_of(message_id: str) -> int | None:
    """Return the id in a MessageId; None if it is not one of ours."""
    match = _UUID.fullmatch(message_id)
    if match is None:
        return None
    id = int(match[1], 16) << 60 | int(match[2], 16) << 48 | int(match[3], 16)
    return id if id < _ID_END else None


def sequence_number(id: int) -> str:
    return f"{id:020d}"


def receipt_handle(receipt: Receipt) -> str:
    return urlsafe_b64encode(_SHAPE.pack(_MARK, *receipt)).decode()


def receipt(handle: str) -> Receipt:
    """Read a receipt handle; an invalid one is refused with ReceiptHandleIsInvalid."""
    if _HANDLE.fullmatch(handle) is not None:
        packed = a2b_base64(handle.encode().translate(_TO_STANDARD))
        mark, *fields = _SHAPE.unpack(packed)
        read = Receipt._make(fields)
        if mark == _MARK and 0 < read.id < _ID_END and 0 < read.token < _TOKEN_END:
            return read
    raise errors.RECEIPT_HANDLE_IS_INVALID(
        f'The input receipt handle "{handle[:_SHOWN]}" is not a valid receipt handle.'
    )
