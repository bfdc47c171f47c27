"""The same calls to Fairturn's SQS and to moto's: where the two should agree, they must.

Where they do not is in one table, with the reason; a line of it that is not true any more fails.
By SQS.md (the facts this server is built by, from AWS's documentation and recordings) Fairturn is
right in all of them, unless a line says that nobody knows.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from fairturn.server.sqs.wire.action_table import ACTIONS
from tests.server.moto_scenarios import SCENARIOS
from tests.server.moto_twins import ACCOUNT, Scenario, Side, client, differences, moto
from tests.server.serve_programs import serve, sqlite

PROTOCOLS = ("json", "query")

# A scenario, and under it: the step; what differs; why, with the paragraph of SQS.md. What differs
# is `ours / moto's` outcome (200, or a code without its prefix; broken: no answer that the protocol
# knows), or a place in the answer, where it helps with `ours / moto's` value. A line of "every
# scenario" may be true anywhere. (json), (query): in that protocol only.
DISAGREEMENTS = """
every scenario
  (json)   type: InvalidParameterValueException / InvalidParameterValue  §1: the shape, not the code
  (json)   Failed: nothing / []         §2: empty lists are left out
  (json)   queueUrls: nothing / []      §2: empty lists are left out
  (json)   Tags: nothing / {}           §2: empty maps are left out
  *        MD5OfMessageSystemAttributes: 5ae4d5d7636402d80f4eb6d213245a88 / nothing  §1: on send
  *        SequenceNumber: a number of 20 digits / nothing  §2: FIFO has them, also by content
  *        Attributes.CreatedTimestamp       AWS has whole seconds, moto has fractions
  *        Attributes.LastModifiedTimestamp  AWS has whole seconds, moto has fractions
  *        Attributes.Policy.Version: 2008-10-17 / 2012-10-17  §2: AddPermission's version
create_queue
  CreateQueue 5   text                             §2: the attribute that differs is named
  CreateQueue 7   MissingParameter / InvalidParameterValue  nobody knows: an empty QueueName
  CreateQueue 9   InvalidParameterValue / 200      a dot is for .fifo only, by AWS's documentation
  CreateQueue 10  text                             AWS's own sentence
  CreateQueue 11  InvalidAttributeName / 200       §2: FIFO-only attributes on a standard queue
  CreateQueue 13  InvalidAttributeName / 200       §1: InvalidAttributeName, for what nobody knows
queue_urls
  ListQueues 4 (json)   InvalidParameterValue / InvalidToken  §1: there is no such error
  ListQueues 4 (query)  InvalidParameterValue / broken        moto answers in JSON here
  ListQueues 5    InvalidParameterValue / 200      §3.12: at most 1000
queue_attributes
  SetQueueAttributes 2  InvalidAttributeName / 200   §1: InvalidAttributeName
  SetQueueAttributes 3  InvalidAttributeValue / 200  §2: visibility is 0..43200
  SetQueueAttributes 4  InvalidAttributeName / 200   §2: FIFO-only attributes on a standard queue
  GetQueueAttributes 9  Attributes.KmsDataKeyReusePeriodSeconds: nothing / 300  §2: gone at default
  GetQueueAttributes 9  Attributes.SqsManagedSseEnabled: false / true  §2: KmsMasterKeyId flips it
fifo_attributes
  SetQueueAttributes 2  InvalidAttributeValue / 200  §3.11: the type of a queue stays
send_message
  SendMessage 6   MissingParameter / 200           §2: an empty body
  SendMessage 7   InvalidMessageContents / 200     §2: the characters of XML 1.0
  SendMessage 11  InvalidParameterValue / 200      §2: DelaySeconds is 0..900
  SendMessage 13  InvalidParameterValue / 200      §2: an empty attribute value is rejected
  SendMessage 14  text                             nobody knows: the type is empty, not the value
  SendMessage 15  InvalidParameterValue / 200      §2: up to 10 message attributes
  SendMessage 16  InvalidParameterValue / 200      §2: names do not start with AWS.
  SendMessage 17  InvalidParameterValue / 200      AWS's documentation: a Number is a number
  SendMessage 19  InvalidParameterValue / 200      §2: a group id has no blanks
  SendMessage 20  InvalidParameterValue / 200      §2: MessageDeduplicationId is FIFO's
send_batch
  SendMessageBatch 10  Failed                      §3.10: bad characters fail their own entry
  SendMessageBatch 10  Successful                  §3.10: bad characters fail their own entry
receive_message
  ReceiveMessage 4 (query)  Messages[0].Attributes           §1: MessageSystemAttributeName.N
  ReceiveMessage 5 (query)  Messages[0].Attributes.SenderId  §1: MessageSystemAttributeName.N
  ReceiveMessage 12  InvalidAttributeName / 200    §1: InvalidAttributeName
  ReceiveMessage 13  text                          AWS's sentence has no prefix of an SDK
  ReceiveMessage 14  text                          AWS's sentence has no prefix of an SDK
  ReceiveMessage 15  text                          AWS's sentence has no prefix of an SDK
  ReceiveMessage 16  text                          AWS's sentence names value and bounds
  ReceiveMessage 17  InvalidParameterValue / 200   §2: visibility is 0..43200
visibility
  ChangeMessageVisibility 3  text                         AWS's sentence names value and bounds
  ChangeMessageVisibility 4  InvalidParameterValue / 200  §2: visibility is 0..43200
  ChangeMessageVisibility 5  text                         AWS's sentence names the handle
  ChangeMessageVisibility 7  InvalidParameterValue / ReceiptHandleIsInvalid  §2: a deleted message
  ChangeMessageVisibilityBatch 1  Failed[0].Message       AWS's sentence names the handle
  ChangeMessageVisibilityBatch 1  Failed[1].Message       AWS's sentence names value and bounds
  ChangeMessageVisibilityBatch 2  EmptyBatchRequest / 200         §3.10: it fails the batch
  ChangeMessageVisibilityBatch 3  BatchEntryIdsNotDistinct / 200  §3.10: it fails the batch
delete_message
  DeleteMessage 3       text                                AWS's sentence names the handle
  DeleteMessageBatch 3  TooManyEntriesInBatchRequest / 200  §2: up to 10 entries
  DeleteMessageBatch 4  BatchEntryIdsNotDistinct / 200      §3.10: it fails the batch
  DeleteMessageBatch 5  200 / BatchEntryIdsNotDistinct      §2: of ids, not of handles
  DeleteMessageBatch 6  InvalidBatchEntryId / 200           §2: [A-Za-z0-9_-]{1,80}
fifo
  SendMessage 4   MessageId: MessageId of SendMessage 1, 1 / MessageId of SendMessage 4, 1  §2: once
  SendMessage 9   MessageId: MessageId of SendMessage 1, 1 / MessageId of SendMessage 9, 1  §2: once
fifo_by_content
  SendMessage 2   MessageId: MessageId of SendMessage 1, 1 / MessageId of SendMessage 2, 1  §2: once
receive_attempts
  ReceiveMessage 2  Messages                       §2: the same attempt, the same messages
  ReceiveMessage 3  InvalidParameterValue / 200    §2: attempts are FIFO's
dead_letters
  ReceiveMessage 4 (query)  Messages[0].Attributes                           §1: as above
  ReceiveMessage 4 (json)   Messages[0].Attributes.DeadLetterQueueSourceArn  §2: it is added
  SetQueueAttributes 1   InvalidParameterValue / NonExistentQueue  §2: the target must exist
  SetQueueAttributes 2   text                      AWS's sentence names the parameter
  SetQueueAttributes 3   text                      AWS's sentence names the parameter
  SetQueueAttributes 4   InvalidParameterValue / 200     AWS's documentation: 1..1000
  SetQueueAttributes 6   InvalidParameterValue / broken  moto fails on what is no JSON
  SetQueueAttributes 8   InvalidParameterValue / 200     §2: of the same type
  SetQueueAttributes 10  InvalidParameterValue / 200     AWS's documentation of RedriveAllowPolicy
move_tasks
  StartMessageMoveTask 1   ResourceNotFoundException / broken  moto has no move tasks
  StartMessageMoveTask 2   200 / broken                        moto has no move tasks
  ListMessageMoveTasks 1   ResourceNotFoundException / broken  moto has no move tasks
  ListMessageMoveTasks 2   200 / broken                        moto has no move tasks
  CancelMessageMoveTask 1  InvalidParameterValue / broken      moto has no move tasks
  CancelMessageMoveTask 2  200 / broken                        moto has no move tasks
"""


class QueueInfo(NamedTuple):
    scenario: str
    step: str  # "": any
    what: str
    values: tuple[str, str] | None  # ours and moto's; None: that they differ is enough
    protocols: tuple[str, ...]
    why: str

    def explains(self, step: str, what: str, values: tuple[str, str]) -> bool:
        return self.what == what and self.step in ("", step) and self.values in (None, values)


def table() -> Iterator[QueueInfo]:
    scenario = ""
    for line in DISAGREEMENTS.strip().splitlines():
        if not line.startswith(" "):
            scenario = line
            continue
        step, what, why = re.split(r"  +", line.strip())
        only = tuple(protocol for protocol in PROTOCOLS if f"({protocol})" in step)
        step = re.sub(r" ?\(\w+\)$|^\*$", "", step)
        values: tuple[str, str] | None = None
        if " / " in what:
            what, _, both = what.rpartition(": ")
            ours, _, theirs = both.partition(" / ")
            what, values = what or "outcome", (ours, theirs)
        yield QueueInfo(scenario, step, what, values, only or PROTOCOLS, why)


def word(value: Any) -> str:
    """A value as the table has it."""
    return "nothing" if value is None else str(value).removeprefix("AWS.SimpleQueueService.")


Twins = dict[str, tuple[Any, Any]]  # by protocol: a client of ours, and one of moto's


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with contextlib.ExitStack() as stack:
        database = sqlite(tmp_path_factory.mktemp("twins"))
        ours = stack.enter_context(serve(database, "--account", ACCOUNT)).url
        theirs = stack.enter_context(moto())
        yield {
            protocol: (
                stack.enter_context(client(protocol, ours)),
                stack.enter_context(client(protocol, theirs)),
            )
            for protocol in PROTOCOLS
        }


def steps(client: Any, scenario: Scenario, name: str) -> dict[str, Any]:
    side = Side(client, name)
    try:
        scenario(side)
    finally:
        client.close()  # its connections; it opens others when it needs them
    return side.steps


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_two_agree(twins: Twins, scenario: Scenario, protocol: str) -> None:
    name = scenario.__name__
    ours, theirs = (steps(one, scenario, f"{name}-{protocol}") for one in twins[protocol])
    assert ours.keys() == theirs.keys()
    known = [one for one in table() if protocol in one.protocols]
    untrue = {one for one in known if one.scenario == name}
    for step in ours:
        for what, *values in differences(ours[step], theirs[step]):
            both = (word(values[0]), word(values[1]))
            reasons = {
                one
                for one in known
                if one.scenario in (name, "every scenario") and one.explains(step, what, both)
            }
            assert reasons, f"{step}, {what}: {both[0]} / {both[1]}"
            untrue -= reasons
    assert not untrue, "they agree by now"


def test_every_action_is_asked_and_refused(twins: Twins) -> None:
    """The scenarios leave nothing out."""
    answered: dict[str, set[str]] = {action: set() for action in ACTIONS}
    ours, _ = twins["json"]
    for number, scenario in enumerate(SCENARIOS):
        for step, told in steps(ours, scenario, f"all-{number}").items():
            answered[step.partition(" ")[0]].add("refused" if "error" in told else "answered")
    assert answered == {action: {"answered", "refused"} for action in ACTIONS}


def test_the_table_names_scenarios() -> None:
    names = {scenario.__name__ for scenario in SCENARIOS}
    assert {known.scenario for known in table()} <= {"every scenario", *names}
    assert all(re.search("§|AWS|moto|nobody knows", known.why) for known in table())
