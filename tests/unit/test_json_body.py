"""fairturn.Json itself: what it takes, and what it refuses."""

from __future__ import annotations

import pickle

import pytest

from fairturn import InvalidArgument, InvalidBody, Json
from fairturn.core import check

BROKEN = (
    *("", " ", "{", "[1,]", "{'a': 1}", "01", "1.", ".5", "+1", "tru", "1 2", "// x\n1", "\ufeff1"),
    *("NaN", "[NaN]", "Infinity", '{"a": -Infinity}', '"\n"', '"\\x"', "'a'", "undefined"),
)


@pytest.mark.parametrize("text", BROKEN)
@pytest.mark.parametrize("given", [str, str.encode], ids=["str", "bytes"])
def test_what_is_no_json_is_refused(text, given):
    with pytest.raises(InvalidArgument, match="not JSON"):
        Json(given(text))


@pytest.mark.parametrize(
    "given", [b'"\xff"', '"é"'.encode("latin-1"), '"a"'.encode("utf-16"), '"\ud800"']
)
def test_so_is_what_is_not_in_utf_8(given):
    with pytest.raises(InvalidArgument, match="not JSON"):
        Json(given)


def test_and_what_is_nested_too_deeply_to_be_read():
    with pytest.raises(InvalidArgument, match="nested too deeply"):
        Json("[" * 200_000 + "]" * 200_000)


def test_and_a_number_too_long_to_be_read():
    with pytest.raises(InvalidArgument, match="not JSON"):
        Json("1" * 100_000)


@pytest.mark.parametrize("given", [None, 1, {"a": 1}, ["a"], bytearray(b"1"), memoryview(b"1")])
def test_only_text_is_taken(given):
    with pytest.raises(InvalidArgument, match="JSON text as str or bytes"):
        Json(given)


def test_it_is_a_value():
    assert Json("[1]") == Json(b"[1]") != Json("[1] ")
    assert Json("1") != b"1"
    assert len({Json("[1]"), Json(b"[1]")}) == 1
    assert repr(Json('"secret"')) == "<Json of 8 bytes>"
    assert pickle.loads(pickle.dumps(Json("[1]"))) == Json("[1]")


def test_it_is_the_whole_body_or_nothing():
    assert check.payload(Json("[1]"), "the body") == (b"[1]", 1)
    with pytest.raises(InvalidBody):
        check.payload({"a": Json("1")}, "the body")
