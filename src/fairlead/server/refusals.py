"""Why a request is turned away at the door, in AWS's own codes and texts.

A refusal is a value. Each protocol names it differently: Query shows ``code``; JSON shows ``type``
and repeats ``code`` in ``x-amzn-query-error``. Statuses are the same in both. No text repeats a
secret, a signature or a token: a text goes to whoever asked, and into logs.
"""

from __future__ import annotations

from dataclasses import dataclass

_NAMESPACE = "com.amazon.coral.service#"
_SHOWN = 200  # characters of what the caller sent that a text may repeat


@dataclass(frozen=True, slots=True)
class Refusal:
    code: str  # "SignatureDoesNotMatch": Query's <Code>, and the SDKs' Error.Code
    type: str  # "com.amazon.coral.service#InvalidSignatureException": JSON's __type
    status: int
    message: str


class Refused(Exception):
    """Carries a refusal up to where it becomes a value."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(f"{refusal.code}: {refusal.message}")


def missing_token() -> Refusal:
    return _refusal(
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        403,
        "Request is missing Authentication Token",
    )


def incomplete(message: str) -> Refusal:
    """The parts of a signature are missing, doubled or malformed."""
    return _refusal("IncompleteSignature", "IncompleteSignatureException", 400, message)


def unknown_key() -> Refusal:
    """No such access key, or not with this session token."""
    return _refusal(
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        403,
        "The security token included in the request is invalid.",
    )


def mismatch(message: str | None = None) -> Refusal:
    """The signature is not of this request, this key, this time or this place."""
    return _refusal(
        "SignatureDoesNotMatch",
        "InvalidSignatureException",
        403,
        message
        or "The request signature we calculated does not match the signature you provided. Check "
        "your AWS Secret Access Key and signing method. Consult the service documentation for "
        "details.",
    )


def expired() -> Refusal:
    """A presigned request after its X-Amz-Expires."""
    return _refusal("RequestExpired", "RequestExpiredException", 400, "Request has expired.")


def denied(resource: str) -> Refusal:
    """The key is good but may not do this; the same whether ``resource`` exists or not."""
    return _refusal(
        "AccessDenied",
        "AccessDeniedException",
        403,
        f"Access to the resource {shown(resource)} is denied.",
    )


def shown(sent: str) -> str:
    """What the caller sent, fit for a text: short, and nothing that breaks a line of a log."""
    plain = "".join(
        char if char.isascii() and char.isprintable() else "?" for char in sent[:_SHOWN]
    )
    return plain + "..." * (len(sent) > _SHOWN)


def _refusal(code: str, name: str, status: int, message: str) -> Refusal:
    return Refusal(code, _NAMESPACE + name, status, message)
