"""One thing of a signed request is changed, or the time is another: it is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from botocore.auth import SigV4Auth

from fairturn.server.auth.keys import AccessKey, Keys
from fairturn.server.auth.sigv4 import SignedRequest
from tests.server.signing import (
    FORMS,
    KEY,
    TARGET,
    URL,
    accepted,
    adding,
    gotten,
    header,
    now,
    posted,
    presigned,
    refused,
    refused_somehow,
    sign,
    signature,
    swapping,
    with_header,
)

# --- one thing changed --------------------------------------------------------------------------


def test_another_method_is_refused(signed: SignedRequest) -> None:
    refused(replace(signed, method="PUT"), "SignatureDoesNotMatch")


@pytest.mark.parametrize(
    "path", [b"/1/other", b"/1/orders/", b"/1/Orders", b"/", b"/1%2Forders", b"/1/order%73"]
)
def test_another_path_is_refused(signed: SignedRequest, path: bytes) -> None:
    refused(replace(signed, path=path), "SignatureDoesNotMatch")


def test_another_query_is_refused(signed: SignedRequest) -> None:
    more = signed.query + b"&B=" if signed.query else b"B="
    refused(replace(signed, query=more), "SignatureDoesNotMatch")


@pytest.mark.parametrize("form", ["get", "presigned"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"A=1", b"A=2"),
        (b"A=1", b"a=1"),
        (b"&A=1%202", b""),
        (b"A=1", b"A=1&A=1"),
        (b"ReceiveMessage", b"DeleteMessage"),
    ],
)
def test_a_changed_query_is_refused(form: str, old: bytes, new: bytes) -> None:
    request = FORMS[form]()
    assert old in request.query
    refused(replace(request, query=request.query.replace(old, new, 1)), "SignatureDoesNotMatch")


def signed_names(request: SignedRequest) -> list[str]:
    if request.query and b"X-Amz-SignedHeaders=host&" in request.query:
        return ["host"]
    listed = header(request, "Authorization").partition(b"SignedHeaders=")[2].partition(b",")[0]
    return listed.decode().split(";")


def test_every_signed_header_must_be_as_it_was(signed: SignedRequest) -> None:
    names = signed_names(signed)
    assert "host" in names
    for name in names:
        value = header(signed, name)
        if name != "x-amz-date":  # the next tests have the time
            refused(with_header(signed, name, value + b"x"), "SignatureDoesNotMatch")
        for changed in (None, b""):
            refused_somehow(with_header(signed, name, changed))
        refused_somehow(adding(signed, name, value))


def test_every_byte_of_the_body_counts() -> None:
    request = posted()
    for place in range(len(request.body)):
        body = bytearray(request.body)
        body[place] ^= 1
        refused(replace(request, body=bytes(body)), "SignatureDoesNotMatch")
    for body in (b"", request.body + b" ", request.body[:-1]):
        refused(replace(request, body=body), "SignatureDoesNotMatch")


def test_a_body_where_there_was_none_is_refused() -> None:
    for request in (gotten(), presigned()):
        refused(replace(request, body=b"x"), "SignatureDoesNotMatch")


def test_every_digit_of_the_signature_counts(signed: SignedRequest) -> None:
    given = signature(signed)
    assert len(given) == 64
    for place, digit in enumerate(given):
        other = given[:place] + ("0" if digit != "0" else "1") + given[place + 1 :]
        refused(swapping(signed, given.encode(), other.encode()), "SignatureDoesNotMatch")
    for other in (given[:-1], given + "0", given.upper(), "0" * 64):
        refused(swapping(signed, given.encode(), other.encode()), "SignatureDoesNotMatch")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (b"/eu-central-1/", b"/eu-central-2/", "SignatureDoesNotMatch"),
        (b"/eu-central-1/", b"//", "SignatureDoesNotMatch"),
        (b"/eu-central-1/", b"/EU/", "SignatureDoesNotMatch"),
        (b"/sqs/", b"/sns/", "SignatureDoesNotMatch"),
        (b"/aws4_request", b"/aws4", "SignatureDoesNotMatch"),
        (b"AKIDEXAMPLE", b"AKIDUNKNOWN", "InvalidClientTokenId"),
        (b"AKIDEXAMPLE", b"", "InvalidClientTokenId"),
        (b"AKIDEXAMPLE/", b"", "IncompleteSignature"),
        (b"/sqs/", b"/sqs/sqs/", "IncompleteSignature"),
        (b"AWS4-HMAC-SHA256", b"AWS4-HMAC-SHA512", "IncompleteSignature"),
        (b"host", b"hosts", "SignatureDoesNotMatch"),
        (b"host", b"ho st", "IncompleteSignature"),
        (b"host", b"host;;x", "IncompleteSignature"),
        (b"host", b"host;x-other", "SignatureDoesNotMatch"),
    ],
)
def test_another_claim_is_refused(signed: SignedRequest, old: bytes, new: bytes, code: str) -> None:
    refused(swapping(signed, old, new), code)


def test_another_secret_is_refused(signed: SignedRequest) -> None:
    keys = Keys([replace(KEY, secret=KEY.secret + "x")])
    refused(signed, "SignatureDoesNotMatch", keys)


def test_no_key_at_all_is_an_unknown_key(signed: SignedRequest) -> None:
    refused(signed, "InvalidClientTokenId", Keys())


def test_the_stand_in_for_unknown_keys_opens_nothing() -> None:
    request = sign("POST", URL, TARGET, b"{}", key=AccessKey("AKIDUNKNOWN", "0" * 40))
    refused(request, "InvalidClientTokenId")


def test_a_key_of_another_is_refused(signed: SignedRequest) -> None:
    keys = Keys([KEY, AccessKey("AKIDOTHER", "another")])
    refused(swapping(signed, b"AKIDEXAMPLE", b"AKIDOTHER"), "SignatureDoesNotMatch", keys)


@pytest.mark.parametrize("region", ["EU", "eu central", "eu_1", "é", "x" * 65])
def test_no_region_is_called_so_however_well_it_is_signed(region: str) -> None:
    request = sign("GET", URL, {}, region=region, expires=600)
    assert "valid region" in refused(request, "SignatureDoesNotMatch").message


def test_another_terminator_is_named() -> None:
    answer = refused(swapping(posted(), b"aws4_request", b"aws5"), "SignatureDoesNotMatch")
    assert "valid terminator: 'aws4_request', not 'aws5'." in answer.message


def test_another_service_is_refused() -> None:
    other = sign("POST", URL, TARGET, b"{}", service="sns")
    assert "correct service: 'sqs'" in refused(other, "SignatureDoesNotMatch").message


@pytest.mark.parametrize("name", ["Host", "X-Amz-Target", "X-Custom"])
def test_a_folded_header_is_refused(name: str) -> None:
    request = posted()
    value = header(request, name)
    for fold in (b"\r\n ", b"\n\t", b"\r "):
        refused(with_header(request, name, fold + value), "IncompleteSignature")
    refused(with_header(request, name, value + b"\0"), "IncompleteSignature")


@pytest.mark.parametrize("name", ["Host", "X-Amz-Target", "X-Amz-Date", "Authorization"])
def test_a_header_that_is_there_twice_is_refused(name: str) -> None:
    request = posted()
    refused(adding(request, name, header(request, name)), "IncompleteSignature")
    refused(adding(request, name.lower(), b"other"), "IncompleteSignature")


def test_a_signed_header_in_two_parts_is_no_way_around() -> None:
    request = posted(**{"X-Amz-Meta": "a,b"})
    assert accepted(request)
    split = adding(with_header(request, "X-Amz-Meta", b"a"), "X-Amz-Meta", b"b")
    refused(split, "IncompleteSignature")
    refused(adding(posted(), "X-Custom", b"c"), "SignatureDoesNotMatch")


def test_an_unsigned_amz_header_is_refused(signed: SignedRequest) -> None:
    answer = refused(adding(signed, "X-Amz-Extra", b"1"), "SignatureDoesNotMatch")
    assert "not signed: x-amz-extra" in answer.message


class Hostless(SigV4Auth):
    """Signs well, but not the host: good for every server that has the key."""

    def headers_to_sign(self, request: object) -> Any:
        headers = super().headers_to_sign(request)
        del headers["host"]
        return headers


def test_a_signature_without_host_is_refused() -> None:
    request = sign("POST", URL, TARGET, b"{}", signer=Hostless)
    answer = refused(request, "SignatureDoesNotMatch")
    assert "'Host' must be a 'SignedHeader'" in answer.message


def test_a_request_without_host_is_refused(signed: SignedRequest) -> None:
    answer = refused(with_header(signed, "Host", None), "SignatureDoesNotMatch")
    assert "'Host' must be a 'SignedHeader'" in answer.message


# --- the time -----------------------------------------------------------------------------------


def test_the_clock_may_be_fifteen_minutes_off(signed: SignedRequest) -> None:
    for minutes in (-14, 14):
        assert accepted(signed, now() + timedelta(minutes=minutes))
    early = refused(signed, "SignatureDoesNotMatch", at=now() - timedelta(minutes=16))
    assert early.message.startswith("Signature not yet current: ")
    assert early.message.endswith(" + 15 min.)")


@pytest.mark.parametrize("form", ["json", "form", "get"])
def test_a_signature_expires_after_fifteen_minutes(form: str) -> None:
    late = refused(FORMS[form](), "SignatureDoesNotMatch", at=now() + timedelta(minutes=16))
    assert late.message.startswith("Signature expired: ")
    assert late.message.endswith(" - 15 min.)")


def test_a_presigned_request_is_good_for_as_long_as_it_says() -> None:
    hour, week = presigned(3600), presigned(604_800)
    assert accepted(hour, now() + timedelta(minutes=59))
    assert accepted(week, now() + timedelta(days=6, hours=23))
    refused(hour, "RequestExpired", at=now() + timedelta(minutes=61))
    refused(week, "RequestExpired", at=now() + timedelta(days=7, minutes=1))
    refused(presigned(1), "RequestExpired", at=now() + timedelta(minutes=1))


@pytest.mark.parametrize("given", [b"0", b"604801", b"-1", b"", b"1.5", b"1e3", b"9" * 5_000])
def test_an_odd_expiry_is_refused(given: bytes) -> None:
    request = presigned()
    query = request.query.replace(b"X-Amz-Expires=3600", b"X-Amz-Expires=" + given)
    refused(replace(request, query=query), "IncompleteSignature")


def test_a_longer_expiry_than_was_signed_is_refused() -> None:
    request = presigned(60)
    query = request.query.replace(b"X-Amz-Expires=60", b"X-Amz-Expires=6000")
    refused(replace(request, query=query), "SignatureDoesNotMatch")
    query = request.query.replace(b"&X-Amz-Expires=60", b"")
    refused(replace(request, query=query), "SignatureDoesNotMatch")


def test_another_time_than_was_signed_is_refused() -> None:
    request = posted()
    given = header(request, "X-Amz-Date")
    minute = timedelta(minutes=1 if given[9:11] < b"12" else -1)  # on the same day
    other = (now() + minute).strftime("%Y%m%dT%H%M%SZ").encode()
    assert (other[:8], other != given) == (given[:8], True)
    refused(with_header(request, "X-Amz-Date", other), "SignatureDoesNotMatch")
    yesterday = (now() - timedelta(days=1)).strftime("%Y%m%d").encode()
    scoped = swapping(request, b"/" + header(request, "X-Amz-Date")[:8], b"/" + yesterday)
    answer = refused(scoped, "SignatureDoesNotMatch")
    assert "Date in Credential scope does not match" in answer.message


def test_the_date_header_serves_where_there_is_no_other() -> None:
    request = sign("POST", URL, {**TARGET, "Date": "now"}, b"{}")
    assert b"x-amz-date" not in {name.lower() for name, _ in request.headers}
    assert accepted(request)
    other = format_datetime(now() + timedelta(seconds=61), usegmt=True).encode()
    refused_somehow(with_header(request, "Date", other))


@pytest.mark.parametrize(
    "given",
    [
        "201",
        "2015-08-30T12:36:00Z",
        "20151330T123600Z",
        "20150830T126000Z",
        "٢٠١٥٠٨٣٠T123600Z",
        "Mon, 99 Foo 2015 99:99:99 GMT",
        "Fri, 31 Dec 9999 23:59:59 -1400",
        "\x01",
        "1" * 999,
    ],
)
def test_an_odd_date_is_refused(given: str) -> None:
    answer = refused(
        with_header(posted(), "X-Amz-Date", given.encode("utf-8")), "IncompleteSignature"
    )
    assert answer.message.startswith("Date must be in ISO-8601 'basic format'. Got '")
    assert len(answer.message) < 400
    assert answer.message.isprintable()
