"""Who asks: the signer of a request, or nobody in particular where no keys are configured."""

from __future__ import annotations

import base64
import hashlib
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fairlead.server.keys import Keys
from fairlead.server.refusals import Refusal, denied
from fairlead.server.sigv4 import SignedRequest, verify
from fairlead.server.sqs.asking import Options
from fairlead.server.sqs.bodies import NOBODY

_CREDENTIAL = b"Credential="
_REGION = frozenset((string.ascii_lowercase + string.digits + "-").encode())
_REGION_BYTES = 64


@dataclass(frozen=True, slots=True)
class Who:
    key: str | None  # the access key's id
    account: str
    region: str
    sender: str
    allows: Callable[[str, str | None], bool]


def everyone(action: str, queue: str | None) -> bool:
    return True


class Callers:
    def __init__(
        self,
        keys: Keys,
        options: Options,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._keys = keys
        self._options = options
        self._now = now
        self._senders = {key.id: sender(key.id) for key in keys}

    def who(self, request: SignedRequest, headers: Mapping[bytes, bytes]) -> Who | Refusal:
        """``headers`` are the request's by name; a doubled one may be either."""
        if not len(self._keys):
            return self._anyone(headers)
        caller = verify(request, self._keys, self._now())
        if isinstance(caller, Refusal):
            return caller
        key = caller.key
        return Who(key.id, key.account, caller.region, self._senders[key.id], key.allows)

    def claimed(self, headers: Mapping[bytes, bytes]) -> str:
        """Which key a refused request says it has, for the log: "?ID", if there is that key. Others
        are not shown: people swap an id and its secret."""
        found = headers.get(b"authorization", b"").partition(_CREDENTIAL)[2].partition(b"/")[0]
        id = found.decode("latin-1")
        return f"?{id}" if self._keys.get(id) is not None else "-"

    def _anyone(self, headers: Mapping[bytes, bytes]) -> Who | Refusal:
        if _of_a_page(headers):
            return replace(
                denied(""),
                message="Requests of web pages are refused where no access keys are configured: "
                "any page that somebody visits could read and delete their messages.",
            )
        options = self._options
        region = _region(headers.get(b"authorization", b"")) or options.region
        return Who(None, options.account, region, NOBODY, everyone)


def sender(key: str) -> str:
    """A SenderId that looks like AWS's, the same for a key at all times."""
    digest = hashlib.sha256(key.encode()).digest()
    return "AIDA" + base64.b32encode(digest)[:17].decode()


def _of_a_page(headers: Mapping[bytes, bytes]) -> bool:
    """Did a web page send this? It needs nobody's leave to send a form or to show an "image" whose
    address deletes a queue; but browsers say that it was a page, and no SDK does."""
    return b"origin" in headers or headers.get(b"sec-fetch-site", b"none") != b"none"


def _region(authorization: bytes) -> str | None:
    """The region of a signature that nobody verifies: SDKs sign with whatever they have."""
    _, found, rest = authorization.partition(_CREDENTIAL)
    if not found:
        return None
    parts = rest.partition(b",")[0].split(b"/")
    if len(parts) != 5 or not 0 < len(parts[2]) <= _REGION_BYTES:
        return None
    return parts[2].decode() if _REGION.issuperset(parts[2]) else None
