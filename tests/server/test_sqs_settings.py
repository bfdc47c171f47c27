"""A queue's attributes, dead-letter policies, tags and permissions, as far as their text goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairturn.server.sqs import attribute_rules, redrive
from fairturn.sqs import limits
from tests.server.sqs_asking import refusal

ARN = "arn:aws:sqs:eu-west-1:123456789012:dead"


@pytest.mark.parametrize(
    ("name", "fine", "refused"),
    [
        ("DelaySeconds", ["0", "900"], ["-1", "901", "", "x", "1.0", "٣", "9" * 5_000]),
        ("MaximumMessageSize", ["1024", "1048576"], ["1023", "1048577"]),
        ("MessageRetentionPeriod", ["60", "1209600"], ["59", "1209601"]),
        ("ReceiveMessageWaitTimeSeconds", ["0", "20"], ["21"]),
        ("VisibilityTimeout", ["0", "43200"], ["43201", "-1"]),
        ("KmsDataKeyReusePeriodSeconds", ["60", "86400"], ["59", "86401"]),
        ("SqsManagedSseEnabled", ["true", "False"], ["", "1"]),
        ("Policy", ["", "{}"], ["[]", "x", "[" * 100_000]),
        ("KmsMasterKeyId", ["", "alias/aws/sqs"], []),
    ],
)
def test_values_of_attributes(name: str, fine: list[str], refused: list[str]) -> None:
    for value in fine:
        attribute_rules.attributes({name: value}, fifo=False)
    for value in refused:
        error = refusal(attribute_rules.attributes, {name: value}, fifo=False)
        assert error.code == "InvalidAttributeValue"
        assert error.message == f"Invalid value for the parameter {name}."


@pytest.mark.parametrize(
    ("name", "fine", "refused"),
    [
        ("FifoQueue", ["true", "True"], ["yes"]),
        ("ContentBasedDeduplication", ["true", "false"], ["x"]),
        ("DeduplicationScope", ["queue", "messageGroup"], ["Queue"]),
        ("FifoThroughputLimit", ["perQueue", "perMessageGroupId"], ["x"]),
    ],
)
def test_attributes_of_fifo_queues(name: str, fine: list[str], refused: list[str]) -> None:
    for value in fine:
        attribute_rules.attributes({name: value}, fifo=True)
        error = refusal(attribute_rules.attributes, {name: value}, fifo=False)
        assert (error.code, error.message) == ("InvalidAttributeName", f"Unknown Attribute {name}.")
    for value in refused:
        assert (
            refusal(attribute_rules.attributes, {name: value}, fifo=True).code
            == "InvalidAttributeValue"
        )


@pytest.mark.parametrize("name", ["Foo", "", "All", "QueueArn", "ApproximateNumberOfMessages"])
def test_attributes_that_cannot_be_set(name: str) -> None:
    error = refusal(attribute_rules.attributes, {name: "1"}, fifo=False)
    assert (error.code, error.message) == ("InvalidAttributeName", f"Unknown Attribute {name}.")


@pytest.mark.parametrize("name", ["DelaySeconds", "MessageRetentionPeriod", "VisibilityTimeout"])
def test_times_can_be_extended(name: str) -> None:
    attribute_rules.attributes({name: str(limits.YEARS)}, fifo=False, extended=True)
    for value, extended in ((str(limits.YEARS), False), (str(limits.YEARS + 1), True)):
        error = refusal(attribute_rules.attributes, {name: value}, False, extended)
        assert error.code == "InvalidAttributeValue"


def test_one_kind_of_encryption_at_a_time() -> None:
    both = {"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "true"}
    assert refusal(attribute_rules.attributes, both, fifo=False).code == "InvalidAttributeName"
    attribute_rules.attributes(both | {"SqsManagedSseEnabled": "false"}, fifo=False)


def test_what_is_asked_of_a_queue() -> None:
    assert attribute_rules.asked_of_queue([]) == set()
    assert attribute_rules.asked_of_queue(["QueueArn", "Policy"]) == {"QueueArn", "Policy"}
    assert (
        attribute_rules.asked_of_queue(["All"])
        == attribute_rules.SETTABLE | attribute_rules.COUNTERS
    )
    error = refusal(attribute_rules.asked_of_queue, ["QueueArn", "Foo"])
    assert (error.code, error.message) == ("InvalidAttributeName", "Unknown Attribute Foo.")


def test_what_is_asked_of_a_message_is_the_union_of_both_parameters() -> None:
    assert attribute_rules.asked_of_message(["SenderId"], ["SentTimestamp"]) == {
        "SenderId",
        "SentTimestamp",
    }
    for old, new in ((["All"], []), ([], ["All"]), ([], ["ALL"])):
        assert attribute_rules.asked_of_message(old, new) == attribute_rules.SYSTEM_ATTRIBUTES
    assert attribute_rules.asked_of_message(["Policy"], []) == set()
    assert refusal(attribute_rules.asked_of_message, ["Foo"], []).code == "InvalidAttributeName"
    assert refusal(attribute_rules.asked_of_message, [], ["Policy"]).code == "InvalidAttributeName"


# --- dead letters ---


def test_a_redrive_policy() -> None:
    text = f'{{ "deadLetterTargetArn":"{ARN}", "maxReceiveCount": 5 }}'
    assert redrive.policy(text) == redrive.RedrivePolicy("dead", 5, text)
    assert redrive.policy("") is None


def test_a_count_that_is_text_is_shown_as_a_number() -> None:
    policy = redrive.policy(json.dumps({"maxReceiveCount": "1", "deadLetterTargetArn": ARN}))
    assert policy is not None
    assert policy.max_receives == 1
    assert policy.text == f'{{"maxReceiveCount":1,"deadLetterTargetArn":"{ARN}"}}'


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("x", "Redrive policy is not a valid JSON map."),
        ("[]", "Redrive policy is not a valid JSON map."),
        ({"maxReceiveCount": 5}, "does not contain mandatory attribute: deadLetterTargetArn."),
        ({"deadLetterTargetArn": ARN}, "does not contain mandatory attribute: maxReceiveCount."),
        (
            {"deadLetterTargetArn": "dummy", "maxReceiveCount": 42},
            "Invalid value for deadLetterTargetArn.",
        ),
        (
            {"deadLetterTargetArn": ["x"], "maxReceiveCount": 42},
            "Invalid value for deadLetterTargetArn.",
        ),
        ({"deadLetterTargetArn": ARN, "maxReceiveCount": 0}, "maxReceiveCount: 0, valid values"),
        ({"deadLetterTargetArn": ARN, "maxReceiveCount": "1001"}, "maxReceiveCount: 1001, valid"),
        ({"deadLetterTargetArn": ARN, "maxReceiveCount": True}, "maxReceiveCount: True, valid"),
        ({"deadLetterTargetArn": ARN, "maxReceiveCount": 1.5}, "maxReceiveCount: 1.5, valid"),
    ],
)
def test_a_redrive_policy_that_is_none(policy: Any, reason: str) -> None:
    text = policy if isinstance(policy, str) else json.dumps(policy)
    for error in (
        refusal(redrive.policy, text),
        refusal(attribute_rules.attributes, {"RedrivePolicy": text}, fifo=False),
    ):
        assert error.code == "InvalidParameterValue"
        start = f"Value {text} for parameter RedrivePolicy is invalid. Reason: "
        assert error.message.startswith(start)
        assert reason in error.message


def test_who_may_use_a_dead_letter_queue() -> None:
    assert redrive.allowance("") is None
    assert redrive.allowance('{"redrivePermission":"denyAll"}') == redrive.RedriveAllowPolicy(
        "denyAll", ()
    )
    by_queue = {"redrivePermission": "byQueue", "sourceQueueArns": [ARN]}
    assert redrive.allowance(json.dumps(by_queue)) == redrive.RedriveAllowPolicy("byQueue", (ARN,))


@pytest.mark.parametrize(
    "policy",
    [
        "x",
        "[]",
        "{}",
        {"redrivePermission": "some"},
        {"redrivePermission": ["allowAll"]},
        {"redrivePermission": "byQueue"},
        {"redrivePermission": "byQueue", "sourceQueueArns": []},
        {"redrivePermission": "byQueue", "sourceQueueArns": "x"},
        {"redrivePermission": "byQueue", "sourceQueueArns": [1]},
        {"redrivePermission": "byQueue", "sourceQueueArns": ["x"]},
        {"redrivePermission": "byQueue", "sourceQueueArns": [ARN] * 11},
        {"redrivePermission": "allowAll", "sourceQueueArns": [ARN]},
    ],
)
def test_an_allowance_that_is_none(policy: Any) -> None:
    text = policy if isinstance(policy, str) else json.dumps(policy)
    for error in (
        refusal(redrive.allowance, text),
        refusal(attribute_rules.attributes, {"RedriveAllowPolicy": text}, fifo=False),
    ):
        assert error.code == "InvalidParameterValue"
        assert "RedriveAllowPolicy" in error.message


def test_the_queue_that_an_arn_means() -> None:
    assert redrive.queue_of_arn(ARN) == "dead"
    assert redrive.queue_of_arn("arn:aws-cn:sqs:cn-north-1:123456789012:a.fifo") == "a.fifo"
    for other in ("", "dead", ARN + "/x", ARN + "\n", ARN.replace("sqs", "sns")):
        assert redrive.queue_of_arn(other) is None


# --- tags and permissions ---


def test_tags() -> None:
    attribute_rules.tags({"a": "", "A": "x" * 256, "k" * 128: "v"})
    attribute_rules.tag_keys(["never", "set"])
    attribute_rules.tag_count("orders", 50)
    for call, given in (
        (attribute_rules.tags, {"": "v"}),
        (attribute_rules.tags, {"k" * 129: "v"}),
        (attribute_rules.tags, {"k": "x" * 257}),
        (attribute_rules.tag_keys, []),
        (attribute_rules.tag_keys, [""]),
    ):
        assert refusal(call, given).code == "InvalidParameterValue"
    assert (
        refusal(attribute_rules.tag_count, "orders", 51).message
        == "Too many tags added for queue orders."
    )


def test_permissions() -> None:
    account = "123456789012"
    attribute_rules.permission("label-1", [account], ["SendMessage", "*"])
    seven = ["SendMessage"] * 7
    attribute_rules.permission("l", [account], seven)
    over = refusal(attribute_rules.permission, "l", [account], [*seven, "*"])
    assert (over.code, over.status) == ("OverLimit", 403)
    assert over.message == "8 Actions were found, maximum allowed is 7."
    for action in ("CreateQueue", "Foo", "SQS:SendMessage"):
        error = refusal(attribute_rules.permission, "l", [account], [action])
        assert error.message == (
            f"Value SQS:{action} for parameter ActionName is invalid. Reason: Only the queue owner "
            "is allowed to invoke this action."
        )
    for accounts in ([], ["x"], [account, "1"]):
        error = refusal(attribute_rules.permission, "l", accounts, ["*"])
        assert "parameter PrincipalId is invalid. Reason: Unable to verify." in error.message
    for label in ("a b", "x" * 81):
        assert (
            "parameter Label"
            in refusal(attribute_rules.permission, label, [account], ["*"]).message
        )
