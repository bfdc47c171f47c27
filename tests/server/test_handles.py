"""MessageIds, receipt handles and sequence numbers carry the core's numbers, and nothing else."""

from __future__ import annotations

import uuid
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairturn.sqs import receipt_handles
from fairturn.sqs.errors import SqsError
from fairturn.sqs.receipt_handles import Receipt

IDS = st.integers(1, 2**63 - 1)
RECEIPTS = st.builds(
    Receipt, IDS, st.integers(1, 2**53 - 1), st.integers(0, 2**63), st.integers(0, 2**32 - 1)
)


@given(IDS)
def test_a_message_id_is_a_uuid_and_gives_the_id_back(id: int) -> None:
    text = receipt_handles.message_id(id)
    read = uuid.UUID(text)
    assert (str(read), read.version, read.variant) == (text, 8, uuid.RFC_4122)
    assert receipt_handles.id_of(text) == id


@given(IDS, IDS)
def test_message_ids_differ_as_ids_do(one: int, other: int) -> None:
    assert (receipt_handles.message_id(one) == receipt_handles.message_id(other)) == (one == other)


@given(st.text() | st.uuids().map(str))
def test_what_is_no_message_id_of_ours_has_no_id(text: str) -> None:
    id = receipt_handles.id_of(text)
    assert id is None or receipt_handles.message_id(id) == text


def test_an_id_beyond_64_bits_is_none() -> None:
    assert receipt_handles.id_of("00000000-0000-8008-8000-000000000000") is None


@given(IDS, IDS)
def test_sequence_numbers_have_twenty_digits_and_the_order_of_ids(one: int, other: int) -> None:
    first, second = receipt_handles.sequence_number(one), receipt_handles.sequence_number(other)
    assert len(first) == 20
    assert first.isdigit()
    assert (first < second) == (one < other)


@given(RECEIPTS)
def test_a_receipt_handle_gives_back_what_it_was_made_of(receipt: Receipt) -> None:
    assert receipt_handles.receipt(receipt_handles.receipt_handle(receipt)) == receipt


@given(RECEIPTS, st.integers(0, 39), st.characters())
def test_a_changed_handle_is_refused_or_another_one(
    receipt: Receipt, place: int, char: str
) -> None:
    handle = receipt_handles.receipt_handle(receipt)
    changed = handle[:place] + char + handle[place + 1 :]
    with suppress(SqsError):
        # One spelling each.
        assert receipt_handles.receipt_handle(receipt_handles.receipt(changed)) == changed


@given(st.text(max_size=60))
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(SqsError) as caught:
        receipt_handles.receipt(text)
    assert caught.value.code == "ReceiptHandleIsInvalid"
    assert caught.value.status == 400


@pytest.mark.parametrize(("id", "token"), [(0, 1), (1, 0), (2**63, 1), (1, 2**53)])
def test_numbers_that_no_database_has_are_refused(id: int, token: int) -> None:
    with pytest.raises(SqsError):
        receipt_handles.receipt(receipt_handles.receipt_handle(Receipt(id, token, 1, 0)))
