"""SQS.md §2, sentence by sentence: which tests prove each.

A line is the sentence in short; the lines under it are the tests, `module::test`, in this folder.
Whoever renames or removes one of them is told here.
"""

from __future__ import annotations

import importlib
import inspect
from functools import cache

import pytest

SENTENCES = """
Limits: MaximumMessageSize is 1024..1048576
  test_sqs_settings::test_values_of_attributes
Limits: and 1048576 unless set
  test_sqs_attributes::test_defaults_of_a_standard_queue
  test_sqs_send::test_maximum_message_size_is_one_mebibyte_by_default
Limits: the size is the body with the names, types and values of its attributes
  test_sqs_contents::test_what_counts_to_the_size
  test_sqs_send::test_size_is_body_and_names_and_types_and_values_of_attributes
Limits: a single send that is too large has its sentence
  test_sqs_contents::test_a_message_that_is_too_large
Limits: a batch of more than 1 MiB is BatchRequestTooLong
  test_sqs_checks::test_a_batch_that_is_too_long
  test_sqs_send::test_a_whole_batch_fails_for_empty_too_many_bad_ids_and_total_size
Limits: an entry over the queue's own limit fails alone
  test_sqs_send::test_entries_fail_alone_for_size_characters_and_delay
Limits: up to 10 entries
  test_sqs_checks::test_a_batch_of_too_many
  test_sqs_finish::test_a_whole_batch_of_deletes_fails_for_its_ids_and_its_number
Limits: up to 10 messages
  test_sqs_receive::test_at_most_ten_messages_and_one_unless_said
Limits: a batch id is 1 to 80 letters, digits, _ and -
  test_sqs_checks::test_a_batch_with_a_bad_id
Limits: an id that is there twice is named
  test_sqs_checks::test_a_batch_with_an_id_twice
Limits: a queue name has up to 80 characters, .fifo included
  test_sqs_checks::test_names_that_standard_queues_cannot_have
  test_sqs_checks::test_names_that_fifo_queues_cannot_have
  test_sqs_queues::test_a_queue_name_has_up_to_80_characters_with_its_fifo
Limits: DelaySeconds is 0..900
  test_sqs_settings::test_values_of_attributes
  test_sqs_send::test_delay_seconds_is_0_to_900
Limits: retention is 60..1209600, 345600 unless set
  test_sqs_settings::test_values_of_attributes
  test_sqs_attributes::test_defaults_of_a_standard_queue
Limits: visibility is 0..43200, 30 unless set
  test_sqs_settings::test_values_of_attributes
  test_sqs_attributes::test_defaults_of_a_standard_queue
  test_sqs_receive::test_visibility_is_0_to_43200_and_wait_0_to_20
Limits: wait is 0..20
  test_sqs_settings::test_values_of_attributes
  test_sqs_receive::test_visibility_is_0_to_43200_and_wait_0_to_20
Limits: up to 10 message attributes
  test_sqs_contents::test_ten_attributes_and_no_more
  test_sqs_send::test_there_are_at_most_ten_message_attributes
Limits: up to 50 tags
  test_sqs_tags::test_more_than_50_tags_are_refused
Limits: up to 7 actions in a permission, else OverLimit 403
  test_sqs_tags::test_a_permission_has_up_to_7_actions
Limits: group and deduplication ids are 1..128 letters, digits and punctuation, without blanks
  test_sqs_checks::test_ids
  test_sqs_fifo::test_group_and_dedup_ids_are_1_to_128_alnum_and_punctuation
Limits: a body has the characters of XML 1.0, else InvalidMessageContents
  test_sqs_contents::test_bodies_with_characters_that_cannot_be_sent
  test_sqs_send::test_body_chars_are_the_xml_1_0_set_else_invalid_message_contents
Limits: an empty body is a MissingParameter
  test_sqs_contents::test_an_empty_body
  test_sqs_send::test_an_empty_body_is_a_missing_parameter
Limits: an empty attribute value is rejected
  test_sqs_send::test_an_empty_attribute_value_is_rejected
Limits: which names attributes may have, and which not
  test_sqs_contents::test_names_of_attributes
  test_sqs_contents::test_names_that_attributes_cannot_have
CreateQueue: the same name is fine with equal attributes, those that are missing are ignored
  test_sqs_queues::test_create_queue_with_equal_attributes_is_the_same_queue
  test_sqs_queues::test_create_queue_with_defaults_spelled_out_is_the_same_queue
CreateQueue: counters are ignored
  test_sqs_queues::test_create_queue_does_not_care_what_is_in_the_queue
CreateQueue: else QueueAlreadyExists, which names the attribute
  test_sqs_queues::test_create_queue_with_a_different_value_names_the_attribute
CreateQueue: FIFO-only attributes on a standard queue are InvalidAttributeName
  test_sqs_queues::test_fifo_only_attributes_on_a_standard_queue_are_unknown
CreateQueue: SqsManagedSseEnabled is true by default
  test_sqs_attributes::test_defaults_of_a_standard_queue
CreateQueue: setting KmsMasterKeyId flips it
  test_sqs_attributes::test_setting_a_kms_key_flips_sqs_managed_sse_to_false
CreateQueue: Kms attributes vanish at their defaults
  test_sqs_attributes::test_kms_attributes_vanish_at_their_defaults
CreateQueue: an empty Policy or RedrivePolicy removes it
  test_sqs_attributes::test_an_empty_policy_or_redrive_policy_removes_it
CreateQueue: without matching attributes there is no key Attributes; nor QueueUrls, nor Tags
  test_sqs_attributes::test_without_matching_attributes_the_key_is_absent
CreateQueue: nor Messages, nor Failed
  test_sqs_receive::test_an_empty_receive_has_no_messages_at_all
  test_sqs_send::test_a_batch_is_answered_entry_by_entry
Long poll: it returns as soon as a message is visible, and never waits to fill up
  test_sqs_polls::test_a_poll_returns_at_once_when_there_is_something
Long poll: a new one
  test_sqs_polls::test_a_poll_wakes_for_a_new_message
  test_sqs_polls::test_a_poll_wakes_for_a_message_of_another_process
Long poll: one whose delay has elapsed
  test_sqs_polls::test_a_poll_wakes_when_a_delay_has_elapsed
Long poll: one whose visibility has expired
  test_sqs_polls::test_a_poll_wakes_when_a_visibility_has_expired
  test_sqs_polls::test_a_poll_wakes_when_a_visibility_was_made_0
Long poll: one whose group is unblocked by a delete
  test_sqs_polls::test_a_poll_wakes_when_a_group_is_unblocked_by_a_delete
  test_sqs_polls::test_a_poll_wakes_when_a_group_is_unblocked_by_another_process
Long poll: 0 as the parameter overrides the queue's attribute
  test_sqs_polls::test_the_queue_says_how_long_and_0_overrides_it
Visibility: a handle for each receive
  test_sqs_receive::test_a_received_message_is_invisible_until_its_visibility_ends
Visibility: old handles still delete and extend on standard queues
  test_sqs_finish::test_old_handles_still_delete_on_standard_queues
  test_sqs_finish::test_old_handles_still_extend_on_standard_queues
Visibility: delete is idempotent
  test_sqs_finish::test_delete_is_idempotent
Visibility: change on a deleted message has its sentence
  test_sqs_finish::test_change_on_a_deleted_message_is_invalid
Visibility: 0 on receive leaves it visible
  test_sqs_receive::test_visibility_0_on_receive_leaves_it_visible
Visibility: a FIFO delete after expiry has its sentence
  test_sqs_fifo::test_delete_after_expiry_is_refused_on_fifo
Visibility: the three counts are exact and immediate
  test_sqs_attributes::test_counts_are_exact_and_immediate
  test_sqs_receive::test_counts_are_exact_and_immediate
Visibility: deadlines are precise below a second
  test_sqs_receive::test_a_received_message_is_invisible_until_its_visibility_ends
  test_sqs_finish::test_visibility_can_be_made_longer_and_shorter
Delay: per message it overrides the queue's on standard queues, with 0 too
  test_sqs_send::test_delay_per_message_overrides_queue_and_zero_does_too
Delay: on FIFO more than 0 is rejected, and 0 is the queue's
  test_sqs_fifo::test_a_delay_per_message_above_0_is_rejected_and_0_is_the_queues
Retention: counts from the send, and removes what is in flight
  test_sqs_receive::test_retention_counts_from_send_and_also_removes_in_flight
FIFO: a group is given in order, up to the first that is in flight
  test_sqs_fifo::test_a_group_is_given_in_the_order_of_its_sequence
  test_sqs_fifo::test_a_group_in_flight_gives_nothing_and_others_do
  test_sqs_fifo_groups::test_a_run_of_a_group_ends_where_something_is_in_flight
FIFO: or delayed (docs/sqs.md: a longer delay than the next one's is overtaken)
  test_sqs_fifo_groups::test_with_one_delay_for_all_a_group_keeps_its_order
  test_sqs_fifo_groups::test_what_is_delayed_is_overtaken_by_what_is_ready
FIFO: a batch is filled from one group before the next
  test_sqs_fifo::test_a_batch_is_filled_from_one_group_before_the_next
FIFO: the order of groups (docs/sqs.md: in turn by name, not by who waited the longest)
  test_sqs_fifo_groups::test_groups_take_turns_by_name_ten_of_each
FIFO: a group unlocks on delete and on visibility 0
  test_sqs_fifo::test_a_group_unlocks_on_delete_and_on_visibility_0
FIFO: sequence numbers increase strictly, in 20 digits
  test_sqs_fifo::test_sequence_numbers_are_strictly_increasing_twenty_digit_strings
FIFO: and there are none on standard queues
  test_sqs_fair::test_message_group_id_is_optional_on_standard_queues_and_returned
FIFO: deduplication is for 5 minutes and survives the delete
  test_sqs_fifo::test_a_dedup_id_is_remembered_for_5_minutes_and_survives_delete
FIFO: a purge clears it
  test_sqs_fifo::test_purge_clears_what_was_remembered
FIFO: by content it is the sha256 of the body, in one namespace with explicit ids
  test_sqs_fifo::test_content_is_sha256_and_shares_the_namespace_with_explicit_ids
FIFO: its scope is the queue by default
  test_sqs_fifo::test_scope_is_the_queue_by_default
FIFO: or the group where that was said at the creation; later changes are stored only
  test_sqs_fifo::test_scope_message_group_at_creation_and_later_changes_do_not_alter_it
  test_sqs_attributes::test_the_scope_of_deduplication_is_that_of_the_creation
FIFO: duplicates are successes and are not enqueued
  test_sqs_fifo::test_duplicates_within_a_batch_are_successes_of_one_message
  test_sqs_fifo::test_racing_senders_of_one_id_make_one_message
Attempts: the same id gives the same messages and handles, and resets their visibility
  test_sqs_fifo::test_the_same_attempt_id_gives_the_same_messages_and_handles_again
Attempts: while nothing was deleted or changed, for 5 minutes
  test_sqs_fifo::test_an_attempt_is_not_repeated_once_something_was_deleted_or_changed
Attempts: FIFO only
  test_sqs_fifo::test_an_attempt_id_is_checked_and_for_fifo_only
Fair queues: MessageGroupId is optional on standard queues, and returned
  test_sqs_fair::test_message_group_id_is_optional_on_standard_queues_and_returned
Fair queues: it is validated
  test_sqs_fair::test_message_group_id_is_validated
Fair queues: no order, nothing is blocked
  test_sqs_fair::test_groups_of_a_standard_queue_block_nothing
  test_sqs_fair::test_one_tenants_flood_does_not_delay_the_others
Fair queues: MessageDeduplicationId stays invalid there
  test_sqs_fair::test_message_deduplication_id_stays_invalid_there
DLQ: over maxReceiveCount it is moved, and the same call may return the next one
  test_sqs_receive::test_when_a_receive_would_exceed_max_receive_count_it_moves_instead
  test_sqs_dead_letters::test_a_receive_over_the_count_moves_and_may_return_the_next_message
DLQ: id, time, attributes and count are kept, the count is one more there, the source is told
  test_sqs_dead_letters::test_a_dead_letter_keeps_its_id_time_attributes_and_count_and_tells_its_source
DLQ: the group is unblocked, and the deduplication id becomes the message's id
  test_sqs_fifo::test_a_fifo_dead_letter_unblocks_its_group_and_its_dedup_id_becomes_its_id
DLQ: the target must exist and be of the same type
  test_sqs_dead_letters::test_the_target_of_a_redrive_policy_must_exist_and_be_of_the_same_type
DLQ: with a valid ARN, and maxReceiveCount is required
  test_sqs_settings::test_a_redrive_policy_that_is_none
DLQ: "1" is stored as 1, and otherwise the text is returned as sent
  test_sqs_settings::test_a_count_that_is_text_is_shown_as_a_number
  test_sqs_dead_letters::test_a_redrive_policy_is_returned_as_sent_but_its_count_is_a_number
Move tasks: the source must be a dead-letter queue of something
  test_sqs_moves::test_the_source_must_be_a_dead_letter_queue_of_something
Move tasks: a missing ARN is ResourceNotFoundException 404
  test_sqs_moves::test_a_missing_arn_is_resource_not_found
Move tasks: one running task for each source
  test_sqs_moves::test_one_running_task_per_source
Move tasks: without a destination each goes back to its source, and none is listed
  test_sqs_moves::test_without_a_destination_each_message_goes_back_to_its_own_source
Move tasks: the rate is up to 500, and honoured
  test_sqs_moves::test_the_rate_is_between_1_and_500
  test_sqs_moves::test_the_rate_is_honoured
Move tasks: the handle is base64 of taskId and sourceArn
  test_sqs_move_tasks::test_a_task_handle_is_base64_of_the_task_and_its_source
Move tasks: it is listed only while RUNNING
  test_sqs_move_tasks::test_the_last_10_tasks_are_listed_newest_first
Move tasks: CANCELLING, CANCELLED, COMPLETED
  test_sqs_move_tasks::test_a_running_task_can_be_cancelled
Move tasks: FAILED, with a FailureReason
  test_sqs_move_tasks::test_a_task_fails_when_its_destination_vanishes
  test_sqs_move_tasks::test_a_task_fails_where_a_message_has_no_source_to_go_back_to
Move tasks: a moved message has a new id and time, and its receive count restarts
  test_sqs_moves::test_a_moved_message_is_new_and_its_receive_count_restarts
Permissions: AddPermission edits the Policy, its version and id; one is a scalar, many a list
  test_sqs_tags::test_add_permission_edits_the_policy
Permissions: the last removal drops the Policy
  test_sqs_tags::test_the_last_removal_drops_the_policy
Tags: case-sensitive, and overwritten
  test_sqs_tags::test_tags_are_case_sensitive_and_overwrite
Tags: an empty value is fine
  test_sqs_tags::test_an_empty_tag_value_is_ok
Tags: to untag what is not there is fine
  test_sqs_tags::test_untagging_an_unknown_tag_is_ok
Tags: empty TagKeys and more than 50 tags are errors
  test_sqs_tags::test_empty_tag_keys_are_refused
  test_sqs_tags::test_more_than_50_tags_are_refused
Purge: removes what is visible, in flight and delayed
  test_sqs_queues::test_purge_removes_visible_in_flight_and_delayed_messages_at_once
Purge: a second one within 60 seconds is PurgeQueueInProgress 403
  test_sqs_queues::test_a_second_purge_within_60_seconds_is_refused
Purge: QueueDeletedRecently is off by default
  test_sqs_queues::test_delete_queue_is_effective_at_once_and_its_name_is_free
  test_sqs_queues::test_queue_deleted_recently_is_told_where_it_is_asked_for
Beside §2: the 12 hours of visibility
  test_sqs_finish::test_visibility_is_capped_at_12_hours_in_all
Beside §2: the in-flight caps
  test_sqs_receive::test_at_the_in_flight_cap_a_short_poll_is_over_limit
  test_sqs_receive::test_at_the_in_flight_cap_a_fifo_queue_is_empty
Beside §2: RedriveAllowPolicy
  test_sqs_dead_letters::test_a_redrive_allow_policy_says_which_queues_may_use_it
Beside §2: the MD5 of attributes, and of AWSTraceHeader, are those recorded from AWS
  test_sqs_md5::test_of_attributes
  test_sqs_send::test_the_md5_of_attributes_is_the_one_recorded_from_aws
  test_sqs_send::test_a_trace_header_is_a_system_attribute_with_an_md5_of_its_own
"""
PARAGRAPHS = {
    "Limits": 23,
    "CreateQueue": 10,
    "Long poll": 6,
    "Visibility": 8,
    "Delay": 2,
    "Retention": 1,
    "FIFO": 13,
    "Attempts": 3,
    "Fair queues": 4,
    "DLQ": 6,
    "Move tasks": 10,
    "Permissions": 2,
    "Tags": 4,
    "Purge": 3,
    "Beside §2": 4,
}  # and their sentences: none may be dropped unseen


@cache
def table() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    sentence = ""
    for line in SENTENCES.strip().splitlines():
        if line.startswith("  "):
            found[sentence].append(line.strip())
        else:
            sentence = line
            assert sentence not in found
            found[sentence] = []
    return found


def test_no_sentence_is_missing() -> None:
    counts: dict[str, int] = {}
    for sentence in table():
        paragraph = sentence.partition(":")[0]
        counts[paragraph] = counts.get(paragraph, 0) + 1
    assert counts == PARAGRAPHS


@pytest.mark.parametrize("sentence", table())
def test_a_sentence_has_its_tests(sentence: str) -> None:
    tests = table()[sentence]
    assert tests
    for name in tests:
        module, _, test = name.partition("::")
        found = getattr(importlib.import_module(f"tests.server.{module}"), test, None)
        assert inspect.isfunction(found), f"there is no {name}"
        assert test.startswith("test_")
