"""Parts that are missing or odd, tokens, and what must not be told."""

from __future__ import annotations

import hmac
import random
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qsl, quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairturn.server.auth.keys import Keys
from fairturn.server.auth.sigv4 import SignedRequest, Signer, plain_path
from fairturn.sqs.errors import SqsError, denied
from tests.server.signing import (
    FORMS,
    KEY,
    TOKEN,
    accepted,
    adding,
    formed,
    header,
    posted,
    presigned,
    refused,
    signature,
    swapping,
    verdict,
    with_header,
)

# --- what is missing ----------------------------------------------------------------------------


def test_no_signature_is_a_missing_token() -> None:
    request = with_header(posted(), "Authorization", None)
    answer = verdict(request)
    assert isinstance(answer, SqsError)
    assert answer.code == "MissingAuthenticationToken"
    assert answer.type == "com.amazon.coral.service#MissingAuthenticationTokenException"
    assert (answer.status, answer.message) == (403, "Request is missing Authentication Token")
    for other in (b"", b"Bearer abc", b"AWS AKID:signature"):
        changed = with_header(posted(), "Authorization", other)
        assert str(verdict(changed)) == str(answer)


@pytest.mark.parametrize("part", ["Credential", "SignedHeaders", "Signature"])
def test_a_part_that_is_missing_is_named(part: str) -> None:
    for other in (b"Other=", part.encode() + b"=,Other="):
        changed = swapping(posted(), part.encode() + b"=", other)
        answer = refused(changed, "IncompleteSignature")
        assert answer.message == f"Authorization header requires '{part}' parameter."
        assert answer.status == 400


def test_a_part_that_is_there_twice_is_refused() -> None:
    request = posted()
    given = header(request, "Authorization")
    refused(
        with_header(request, "Authorization", given + b", Signature=" + b"0" * 64),
        "IncompleteSignature",
    )
    refused(with_header(request, "Authorization", given + b", Signature"), "IncompleteSignature")


@pytest.mark.parametrize("part", ["Algorithm", "Credential", "Date", "SignedHeaders", "Signature"])
def test_a_parameter_that_is_missing_or_there_twice_is_named(part: str) -> None:
    request = presigned()
    name = f"X-Amz-{part}=".encode()
    without = replace(request, query=request.query.replace(name, b"Other="))
    answer = verdict(without)
    assert isinstance(answer, SqsError)
    assert answer.code == "IncompleteSignature"
    assert f"must include 'X-Amz-{part}'" in answer.message
    twice = verdict(replace(request, query=request.query + b"&" + name))
    assert isinstance(twice, SqsError)
    assert (twice.code, "twice" in twice.message) == ("IncompleteSignature", True)


def test_a_signature_in_both_places_is_refused() -> None:
    both = adding(presigned(), "Authorization", header(posted(), "Authorization"))
    answer = verdict(both)
    assert isinstance(answer, SqsError)
    assert answer.message.startswith("Found both 'X-Amz-Algorithm'")


def test_no_date_is_refused() -> None:
    answer = refused(with_header(posted(), "X-Amz-Date", None), "IncompleteSignature")
    assert "either a 'X-Amz-Date' or a 'Date' header" in answer.message


# --- session tokens and secrets -----------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "presigned"])
def test_a_session_token_is_checked_where_the_key_has_one(form: str) -> None:
    request = FORMS[form]()
    assert accepted(request)
    assert isinstance(verdict(request, Keys([replace(KEY, token=TOKEN)])), Signer)
    refused(request, "InvalidClientTokenId", Keys([replace(KEY, token="another")]))


def test_a_key_with_a_token_needs_it() -> None:
    refused(formed(), "InvalidClientTokenId", Keys([replace(KEY, token=TOKEN)]))


def test_no_repr_shows_a_secret() -> None:
    keys = Keys([replace(KEY, token=TOKEN)])
    for form in FORMS.values():
        request = form()
        for shown in (request, verdict(request, keys), keys, KEY):
            for secret in (KEY.secret, TOKEN, quote(TOKEN, safe=""), signature(request)):
                assert secret not in repr(shown)


def test_a_secret_in_the_place_of_the_id_is_not_repeated() -> None:
    swapped = swapping(posted(), b"AKIDEXAMPLE", KEY.secret.encode())
    refused(swapped, "IncompleteSignature")


def test_access_denied_says_the_same_of_any_queue() -> None:
    answer = denied("http://localhost/1/orders\r\nX: y")
    assert (answer.code, answer.status) == ("AccessDenied", 403)
    assert answer.message == "Access to the resource http://localhost/1/orders??X: y is denied."


def test_an_unknown_key_costs_what_a_wrong_signature_does(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(posted(), body=b'{"MessageBody":"ho"}')
    unknown = swapping(wrong, b"AKIDEXAMPLE", b"AKIDUNKNOWN")
    calls: list[str] = []
    for name in ("digest", "compare_digest"):
        monkeypatch.setattr(hmac, name, _noting(calls, name, getattr(hmac, name)))
    refused(wrong, "SignatureDoesNotMatch")
    expected = calls.copy()
    calls.clear()
    refused(unknown, "InvalidClientTokenId")
    assert calls == expected == ["digest"] * 5 + ["compare_digest"]


def _noting(calls: list[str], name: str, call: Callable[..., object]) -> Callable[..., object]:
    def noted(*args: object) -> object:
        calls.append(name)
        return call(*args)

    return noted


# --- anything at all ----------------------------------------------------------------------------

PART = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"AWS4-HMAC-SHA256", b"Credential=a/b/c/sqs/aws4_request", b"Signature=0"])
    | st.sampled_from([b"SignedHeaders=host", b"SignedHeaders=\xff;", b"=", b",", b"AWS4-"]),
)
NAMES = st.sampled_from(
    [b"authorization", b"Host", b"date", b"x-amz-date", b"x-amz-content-sha256"]
)
QUERIES = st.sampled_from([b"Algorithm", b"Credential", b"Date", b"Expires", b"SignedHeaders"])


@settings(max_examples=200)
@given(
    st.binary(max_size=30),
    st.lists(st.tuples(QUERIES | st.just(b"Signature"), PART), max_size=7),
    st.lists(st.tuples(NAMES | st.binary(max_size=9), st.lists(PART, max_size=5)), max_size=8),
    st.binary(max_size=9),
)
def test_anything_else_is_refused_and_nothing_fails(
    path: bytes,
    query: list[tuple[bytes, bytes]],
    headers: list[tuple[bytes, list[bytes]]],
    body: bytes,
) -> None:
    request = SignedRequest(
        "POST",
        path,
        b"&".join(b"X-Amz-" + name + b"=" + value for name, value in query),
        [(name, b" ".join(parts)) for name, parts in headers],
        body,
    )
    answer = verdict(request)
    assert isinstance(answer, SqsError)
    assert answer.message.isprintable()


def test_what_is_accepted_still_means_what_was_signed(signed: SignedRequest) -> None:
    """A byte is put in, taken out or changed anywhere, in transit: it is refused or harmless."""
    chance = random.Random(7)
    meant = meaning(signed)
    answers = [0, 0]
    for _ in range(3_000):
        other = damaged(signed, chance)
        answer = verdict(other)
        answers[isinstance(answer, Signer)] += 1
        if isinstance(answer, Signer):
            assert meaning(other) == meant, other.headers
    assert min(answers) > 0, "both must happen, or nothing was tested"


def meaning(request: SignedRequest) -> tuple[object, ...]:
    """What a server that reads the request as usual would take it for."""
    query = parse_qsl(request.query.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    headers = sorted(
        (name.lower(), b" ".join(value.split()))
        for name, value in request.headers
        if name.lower() in (b"host", b"content-type") or name.lower().startswith(b"x-")
    )
    return request.method, plain_path(request.path), sorted(query), headers, request.body


def damaged(request: SignedRequest, chance: random.Random) -> SignedRequest:
    part = chance.choice(("path", "query", "body", "name", "value"))
    if part in ("path", "query", "body"):
        return replace(request, **{part: bitten(getattr(request, part), chance)})
    headers = list(request.headers)
    place = chance.randrange(len(headers))
    name, value = headers[place]
    headers[place] = (
        (bitten(name, chance), value) if part == "name" else (name, bitten(value, chance))
    )
    return replace(request, headers=headers)


def bitten(content: bytes, chance: random.Random) -> bytes:
    place = chance.randint(0, len(content))
    byte = bytes([chance.choice((*b"/.&=+% ,;:\t\n\0aA0", chance.randrange(256)))])
    return content[:place] + chance.choice((b"", byte)) + content[place + chance.randint(0, 1) :]
