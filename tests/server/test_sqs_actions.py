"""The table of actions is botocore's model of SQS, member by member, so that it cannot drift."""

from __future__ import annotations

import pytest
from botocore.model import Shape

from fairturn.server.sqs import attribute_rules
from fairturn.server.sqs.wire.action_table import ACTIONS, ListOf, MapOf, Scalar, Structure, Type
from fairturn.sqs import errors, limits
from tests.server.sqs_models import json_model, operation

NO_KMS = {
    "KmsAccessDenied",
    "KmsDisabled",
    "KmsInvalidKeyUsage",
    "KmsInvalidState",
    "KmsNotFound",
    "KmsOptInRequired",
    "KmsThrottled",
}  # there are no keys of that kind here, so nothing can be wrong with them


def test_all_actions_of_the_model_and_no_others() -> None:
    assert set(ACTIONS) == set(json_model().operation_names)
    assert len(ACTIONS) == 23


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_what_an_action_takes_and_gives(name: str) -> None:
    action = ACTIONS[name]
    model = operation("json", name)
    assert model.input_shape is not None
    assert described(action.input) == modelled(model.input_shape)
    if action.output is None:
        assert model.output_shape is None
    else:
        assert described(action.output) == modelled(model.output_shape)


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_the_names_in_query(name: str) -> None:
    action = ACTIONS[name]
    model = operation("query", name)
    assert query_names(action.input) == model_query_names(model.input_shape)
    if action.output is not None:
        assert query_names(action.output) == model_query_names(model.output_shape)


def test_an_action_that_has_no_queue_url_is_named_so() -> None:
    """CreateQueue and ListQueues are the two that a queue's URL refuses."""
    assert {name for name, action in ACTIONS.items() if not action.at_queues} == {
        "CreateQueue",
        "ListQueues",
    }


def test_every_error_shape_has_a_kind() -> None:
    shapes = {
        name
        for name in json_model().shape_names
        if json_model().shape_for(name).metadata.get("exception")
    }
    assert shapes - NO_KMS - {kind.name for kind in errors.KINDS} == set()
    assert shapes >= NO_KMS


def test_the_attributes_are_the_models() -> None:
    def enum(name: str) -> set[str]:
        return set(json_model().shape_for(name).enum)

    assert attribute_rules.SETTABLE | attribute_rules.COUNTERS | {attribute_rules.ALL} == enum(
        "QueueAttributeName"
    )
    assert attribute_rules.SYSTEM_ATTRIBUTES | {attribute_rules.ALL} == enum(
        "MessageSystemAttributeName"
    )
    assert enum("MessageSystemAttributeNameForSends") == {"AWSTraceHeader"}


def test_the_bounds_leave_room_for_the_deepest_request() -> None:
    deepest = max(depth(action.input) for action in ACTIONS.values())
    assert deepest == 7
    assert deepest < limits.DEPTH
    longest = max(parts(action.input) for action in ACTIONS.values())
    assert longest == 7
    assert longest < limits.KEY_PARTS


def described(type: Type) -> object:
    match type:
        case Scalar():
            return type.kind
        case ListOf():
            return [described(type.item)]
        case MapOf():
            return ("map", described(type.value))
        case Structure():
            return {
                name: (described(member.type), member.required)
                for name, member in type.members.items()
            }


def modelled(shape: Shape) -> object:
    match shape.type_name:
        case "list":
            return [modelled(shape.member)]
        case "map":
            assert shape.key.type_name == "string"
            return ("map", modelled(shape.value))
        case "structure":
            return {
                name: (modelled(member), name in shape.required_members)
                for name, member in shape.members.items()
            }
        case _:
            return shape.type_name


def query_names(type: Type) -> object:
    """Each member's name in Query, where its items have it, and what is inside."""
    match type:
        case Scalar():
            return None
        case ListOf():
            return query_names(type.item)
        case MapOf():
            return (type.key_name, type.value_name, query_names(type.value))
        case Structure():
            return {
                name: (member.query, query_names(member.type))
                for name, member in type.members.items()
            }


def model_query_names(shape: Shape) -> object:
    match shape.type_name:
        case "list":
            return model_query_names(shape.member)
        case "map":
            return (
                shape.key.serialization["name"],
                shape.value.serialization["name"],
                model_query_names(shape.value),
            )
        case "structure":
            return {
                name: (model_query_name(name, member), model_query_names(member))
                for name, member in shape.members.items()
            }
        case _:
            return None


def model_query_name(name: str, member: Shape) -> str:
    if member.type_name == "list":
        assert member.serialization["flattened"]
        return member.member.serialization["name"]
    if member.type_name == "map":
        assert member.serialization["flattened"]
    return member.serialization.get("name", name)


def depth(type: Type) -> int:
    """How deep the JSON of a request can be, counting its scalars."""
    match type:
        case Scalar():
            return 1
        case ListOf():
            return 1 + depth(type.item)
        case MapOf():
            return 1 + depth(type.value)
        case Structure():
            return 1 + max(depth(member.type) for member in type.members.values())


def parts(type: Type) -> int:
    """How many parts the longest name of a parameter has."""
    match type:
        case Scalar():
            return 0
        case ListOf():
            return 1 + parts(type.item)
        case MapOf():
            return 2 + parts(type.value)
        case Structure():
            return 1 + max(parts(member.type) for member in type.members.values())
