"""The table of errors, written down a second time from what AWS documents."""

from __future__ import annotations

import pickle

import pytest

from fairturn.sqs import errors

TABLE = """
    QueueDoesNotExist                  AWS.SimpleQueueService.NonExistentQueue              400
    QueueNameExists                    QueueAlreadyExists                                   400
    QueueDeletedRecently               AWS.SimpleQueueService.QueueDeletedRecently          400
    PurgeQueueInProgress               AWS.SimpleQueueService.PurgeQueueInProgress          403
    OverLimit                          OverLimit                                            403
    ResourceNotFoundException          ResourceNotFoundException                            404
    EmptyBatchRequest                  AWS.SimpleQueueService.EmptyBatchRequest             400
    BatchEntryIdsNotDistinct           AWS.SimpleQueueService.BatchEntryIdsNotDistinct      400
    InvalidBatchEntryId                AWS.SimpleQueueService.InvalidBatchEntryId           400
    TooManyEntriesInBatchRequest       AWS.SimpleQueueService.TooManyEntriesInBatchRequest  400
    BatchRequestTooLong                AWS.SimpleQueueService.BatchRequestTooLong           400
    MessageNotInflight                 AWS.SimpleQueueService.MessageNotInflight            400
    UnsupportedOperation               AWS.SimpleQueueService.UnsupportedOperation          400
    InvalidAttributeName               InvalidAttributeName                                 400
    InvalidAttributeValue              InvalidAttributeValue                                400
    InvalidMessageContents             InvalidMessageContents                               400
    ReceiptHandleIsInvalid             ReceiptHandleIsInvalid                               400
    InvalidParameterValueException     InvalidParameterValue                                400
    MissingRequiredParameterException  MissingParameter                                     400
    InvalidAddress                     InvalidAddress                                       404
    InvalidSecurity                    InvalidSecurity                                      403
    RequestThrottled                   RequestThrottled                                     403
    InvalidIdFormat                    InvalidIdFormat                                      400
"""
ROWS = [tuple(line.split()) for line in TABLE.strip().splitlines()]
OTHERS = {
    "AccessDenied": 403,
    "IncompleteSignature": 400,
    "InternalFailure": 500,
    "InvalidAction": 400,
    "InvalidClientTokenId": 403,
    "MalformedInput": 400,
    "MissingAuthenticationToken": 403,
    "RequestEntityTooLarge": 413,
    "RequestExpired": 400,
    "RequestTimeout": 408,
    "SerializationException": 400,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "UnknownOperationException": 404,
}  # no shapes of SQS's model


@pytest.mark.parametrize(("name", "code", "status"), ROWS)
def test_the_table(name: str, code: str, status: str) -> None:
    [kind] = [kind for kind in errors.KINDS if kind.name == name]
    assert (kind.code, kind.status) == (code, int(status))
    assert kind.type == f"com.amazonaws.sqs#{name}"


def test_there_are_no_others() -> None:
    tabled = {row[0] for row in ROWS}
    rest = {kind.code: kind.status for kind in errors.KINDS if kind.name not in tabled}
    assert rest == OTHERS
    names = [kind.name for kind in errors.KINDS]
    assert len(set(names)) == len(names)


def test_one_error_that_the_protocols_word_differently() -> None:
    gone = errors.QUEUE_DOES_NOT_EXIST()
    assert gone.message == "The specified queue does not exist."
    assert gone.query_message == "The specified queue does not exist for this wsdl version."


def test_the_usual_sentences() -> None:
    assert errors.missing("QueueUrl").message == "The request must contain the parameter QueueUrl."
    assert errors.invalid(3, "X", "Because.").message == (
        "Value 3 for parameter X is invalid. Reason: Because."
    )


def test_an_error_as_an_entry_of_a_batch() -> None:
    assert errors.INTERNAL_FAILURE("down").entry("7") == {
        "Id": "7",
        "SenderFault": False,
        "Code": "InternalFailure",
        "Message": "down",
    }
    assert errors.missing("X").entry("7")["SenderFault"] is True


def test_an_error_survives_another_process() -> None:
    error = errors.QUEUE_DOES_NOT_EXIST()
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.kind, copy.message, copy.query_message, str(copy)) == (
        error.kind,
        error.message,
        error.query_message,
        str(error),
    )
