"""The caller of a request: the owner of its access key, or anybody if no keys are configured."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from fairturn.server.auth.keys import Keys
from fairturn.server.auth.sigv4 import REGION, SignedRequest, verify
from fairturn.server.sqs.request import Caller, Options
from fairturn.sqs.bodies import ANONYMOUS
from fairturn.sqs.errors import ACCESS_DENIED

_CREDENTIAL = b"Credential="


def anonymous(options: Options) -> Caller:
    """Return the caller of requests that nobody has to sign: it may do everything."""
    return Caller(None, options.account, options.region, ANONYMOUS, _allow_all)


def _allow_all(action: str, queue: str | None) -> bool:
    return True


class Callers:
    def __init__(
        self,
        keys: Keys,
        options: Options,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._keys = keys
        self._open = not keys  # requests need no signature
        self._anonymous = anonymous(options)
        self._now = now
        self._senders = {key.id: sender(key.id) for key in keys}

    def identify(self, request: SignedRequest, headers: Mapping[bytes, bytes]) -> Caller:
        """Return the caller of a request, or raise an SqsError. ``headers``: the same, by name."""
        if self._open:
            # A web page can send a form, or show an "image" whose URL deletes a queue. But the
            # browser adds headers that no SDK sends.
            if b"origin" in headers or headers.get(b"sec-fetch-site", b"none") != b"none":
                raise ACCESS_DENIED(
                    "Requests of web pages are refused if no access keys are configured: "
                    "any page that a user visits could read and delete the messages."
                )
            region = _region(headers.get(b"authorization", b""))
            if region is None or region == self._anonymous.region:
                return self._anonymous
            return replace(self._anonymous, region=region)
        key, region = verify(request, self._keys, self._now())
        return Caller(key.id, key.account, region, self._senders[key.id], key.allows)

    def claimed(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the key id that a refused request claims, for the log: "?ID" if such a key exists.
        Other values are not shown: people swap an id and its secret."""
        found = headers.get(b"authorization", b"").partition(_CREDENTIAL)[2].partition(b"/")[0]
        id = found.decode("latin-1")
        return f"?{id}" if self._keys.get(id) is not None else "-"


def sender(key: str) -> str:
    """Return a SenderId that looks like AWS's, always the same for a key."""
    digest = hashlib.sha256(key.encode()).digest()
    return "AIDA" + base64.b32encode(digest)[:17].decode()


def _region(authorization: bytes) -> str | None:
    """Return the region of a signature that is not verified: SDKs sign with any key they have."""
    credential = authorization.partition(_CREDENTIAL)[2].partition(b",")[0]
    match credential.decode("latin-1").split("/"):
        case [_, _, region, _, _] if REGION.fullmatch(region):
            return region
        case _:
            return None
