"""Tags and permissions, through Sqs.answer. Each test is named after the sentence of SQS.md that it
proves."""

from __future__ import annotations

import json
from typing import Any

from tests.conformance.door import unique
from tests.server.sqs_bench import ACCOUNT, Bench, arn_of, name_of


async def tags(bench: Bench, url: str) -> dict[str, str]:
    return (await bench("ListQueueTags", QueueUrl=url))["Tags"]


async def policy(bench: Bench, url: str) -> Any:
    found = await bench.attributes(url, "Policy")
    return json.loads(found["Policy"]) if found else None


# --- tags -------------------------------------------------------------------------------------


async def test_tags_are_case_sensitive_and_overwrite(bench: Bench) -> None:
    url = await bench.queue(tags={"team": "red", "Team": "blue"})
    assert await bench("TagQueue", QueueUrl=url, Tags={"team": "green", "x": "1"}) is None
    assert await tags(bench, url) == {"team": "green", "Team": "blue", "x": "1"}


async def test_an_empty_tag_value_is_ok(bench: Bench) -> None:
    url = await bench.queue(tags={"empty": ""})
    await bench("TagQueue", QueueUrl=url, Tags={"void": "", "ünïcode €": "✓"})
    assert await tags(bench, url) == {"empty": "", "void": "", "ünïcode €": "✓"}


async def test_untagging_an_unknown_tag_is_ok(bench: Bench) -> None:
    url = await bench.queue(tags={"a": "1", "b": "2"})
    assert await bench("UntagQueue", QueueUrl=url, TagKeys=["b", "unknown"]) is None
    assert await tags(bench, url) == {"a": "1"}
    await bench("UntagQueue", QueueUrl=url, TagKeys=["a"])
    assert await bench.rendered("ListQueueTags", QueueUrl=url) == {}


async def test_empty_tag_keys_are_refused(bench: Bench) -> None:
    url = await bench.queue()
    for keys in ([], [""], ["x" * 129]):
        error = await bench.refusal("UntagQueue", QueueUrl=url, TagKeys=keys)
        assert error.code == "InvalidParameterValue"
        assert error.message == "Tag keys must be between 1 and 128 characters in length."


async def test_more_than_50_tags_are_refused(bench: Bench) -> None:
    fifty = {f"tag-{n}": "x" for n in range(50)}
    url = await bench.queue(tags=fifty)
    await bench("TagQueue", QueueUrl=url, Tags={"tag-0": "y"})
    error = await bench.refusal("TagQueue", QueueUrl=url, Tags={"one more": "x"})
    assert error.code == "InvalidParameterValue"
    assert error.message == f"Too many tags added for queue {name_of(url)}."
    assert await tags(bench, url) == fifty | {"tag-0": "y"}
    name = unique()
    error = await bench.refusal("CreateQueue", QueueName=name, tags=fifty | {"one more": "x"})
    assert error.message == f"Too many tags added for queue {name}."


async def test_tags_do_not_touch_attributes_nor_attributes_tags(bench: Bench) -> None:
    url = await bench.queue({"DelaySeconds": "3"}, tags={"a": "1"})
    before = await bench.attributes(url)
    await bench("TagQueue", QueueUrl=url, Tags={"b": "2"})
    assert await bench.attributes(url) == before
    await bench.set(url, DelaySeconds="4")
    assert await tags(bench, url) == {"a": "1", "b": "2"}


async def test_tags_and_policies_that_are_too_large_together_are_over_the_limit(
    bench: Bench,
) -> None:
    url = await bench.queue(tags={"a": "1"})
    large = json.dumps({"x": "y" * 70_000})
    error = await bench.refusal("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": large})
    assert (error.code, error.status) == ("OverLimit", 403)
    error = await bench.refusal("CreateQueue", QueueName=unique(), Attributes={"Policy": large})
    assert error.code == "OverLimit"
    assert await tags(bench, url) == {"a": "1"}


# --- permissions ------------------------------------------------------------------------------


async def test_add_permission_edits_the_policy(bench: Bench) -> None:
    url = await bench.queue()
    one = {"Label": "one", "AWSAccountIds": [ACCOUNT], "Actions": ["SendMessage"]}
    assert await bench("AddPermission", QueueUrl=url, **one) is None
    statement = {
        "Sid": "one",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
        "Action": "SQS:SendMessage",
        "Resource": arn_of(url),
    }
    whole = {"Version": "2008-10-17", "Id": f"{arn_of(url)}/SQSDefaultPolicy"}
    assert await policy(bench, url) == whole | {"Statement": [statement]}
    many = {
        "Label": "many",
        "AWSAccountIds": [ACCOUNT, "999999999999"],
        "Actions": ["ReceiveMessage", "*"],
    }
    await bench("AddPermission", QueueUrl=url, **many)
    [_, second] = (await policy(bench, url))["Statement"]
    assert second == statement | {
        "Sid": "many",
        "Principal": {"AWS": [f"arn:aws:iam::{id}:root" for id in many["AWSAccountIds"]]},
        "Action": ["SQS:ReceiveMessage", "SQS:*"],
    }


async def test_the_last_removal_drops_the_policy(bench: Bench) -> None:
    url = await bench.queue()
    for label in ("one", "two"):
        await bench(
            "AddPermission",
            QueueUrl=url,
            Label=label,
            AWSAccountIds=[ACCOUNT],
            Actions=["SendMessage"],
        )
    assert await bench("RemovePermission", QueueUrl=url, Label="one") is None
    assert [one["Sid"] for one in (await policy(bench, url))["Statement"]] == ["two"]
    await bench("RemovePermission", QueueUrl=url, Label="two")
    assert await policy(bench, url) is None


async def test_labels_are_there_once(bench: Bench) -> None:
    url = await bench.queue()
    one = {"Label": "one", "AWSAccountIds": [ACCOUNT], "Actions": ["SendMessage"]}
    await bench("AddPermission", QueueUrl=url, **one)
    error = await bench.refusal("AddPermission", QueueUrl=url, **one)
    assert error.code == "InvalidParameterValue"
    assert error.message == "Value one for parameter Label is invalid. Reason: Already exists."
    error = await bench.refusal("RemovePermission", QueueUrl=url, Label="two")
    assert error.code == "InvalidParameterValue"
    assert error.message == (
        "Value two for parameter Label is invalid. Reason: can't find label on existing policy."
    )


async def test_a_permission_has_up_to_7_actions(bench: Bench) -> None:
    url = await bench.queue()
    given = {"QueueUrl": url, "AWSAccountIds": [ACCOUNT]}
    await bench("AddPermission", Label="seven", Actions=["SendMessage"] * 7, **given)
    error = await bench.refusal(
        "AddPermission", Label="eight", Actions=["SendMessage"] * 8, **given
    )
    assert (error.code, error.status) == ("OverLimit", 403)
    assert error.message == "8 Actions were found, maximum allowed is 7."


async def test_permissions_are_added_to_a_policy_that_was_set(bench: Bench) -> None:
    mine = {"Version": "2012-10-17", "Statement": {"Sid": "mine", "Effect": "Deny"}}
    url = await bench.queue({"Policy": json.dumps(mine)})
    given = {"QueueUrl": url, "AWSAccountIds": [ACCOUNT], "Actions": ["SendMessage"]}
    await bench("AddPermission", Label="one", **given)
    found = await policy(bench, url)
    assert found["Version"] == "2012-10-17"
    assert [one["Sid"] for one in found["Statement"]] == ["mine", "one"]
    for broken in ({"Statement": "odd"}, {"Statement": ["odd", 3]}, {}):
        await bench.set(url, Policy=json.dumps(broken))
        await bench("AddPermission", Label="one", **given)
        assert (await policy(bench, url))["Statement"][-1]["Sid"] == "one"
