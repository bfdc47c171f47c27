"""The digests with which clients verify that a message arrived unchanged.

SQS uses MD5, which protects against accidents, not against attackers.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import md5
from typing import Any

_STRING = b"\x01"
_BINARY = b"\x02"


def of_body(body: str) -> str:
    return md5(body.encode(), usedforsecurity=False).hexdigest()


def of_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the digest of message attributes as they are on the wire; None without any.

    It covers each attribute in the order of names: its name, its type, one byte for text or binary,
    and its value. All but that byte have their length before them, in four bytes.
    """
    if not attributes:
        return None
    digest = md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        kind: str = attribute["DataType"]
        _measured(digest, name.encode())
        _measured(digest, kind.encode())
        if kind.startswith("Binary"):
            digest.update(_BINARY)
            _measured(digest, attribute["BinaryValue"])
        else:
            digest.update(_STRING)
            _measured(digest, attribute["StringValue"].encode())
    return digest.hexdigest()


def _measured(digest: Any, part: bytes) -> None:
    digest.update(len(part).to_bytes(4, "big"))
    digest.update(part)
