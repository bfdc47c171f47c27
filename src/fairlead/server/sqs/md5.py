"""The digests by which clients see that what arrived is what was sent.

MD5 is what SQS uses; it guards against accidents, not against people.
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
    """Of message attributes as they are on the wire, or None without any.

    Each attribute, by name: its name, its type, one byte that says text or binary, its value; all
    but that byte with their length before them, in four bytes.
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
