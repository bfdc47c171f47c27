"""Access keys: read from a configuration or the environment, and what each may do."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

import pytest

from fairturn.core.errors import InvalidArgument
from fairturn.server.auth.keys import AccessKey, Keys
from fairturn.server.sqs.wire.action_table import ACTIONS

SECRET = "canary/secret+value="
TOKEN = "canary-token"

CONFIG = f"""
[keys.AKIDADMIN]
secret = "{SECRET}"

[keys.AKIDBILLING]
secret = "{SECRET}2"
account = "123456789012"
queues = ["billing-", "mail"]
actions = ["SendMessage", "ListQueues"]
token = "{TOKEN}"
"""


def test_a_configuration_file_names_keys() -> None:
    keys = Keys.from_mapping(tomllib.loads(CONFIG)["keys"])
    assert list(keys) == [
        AccessKey("AKIDADMIN", SECRET),
        AccessKey(
            "AKIDBILLING",
            SECRET + "2",
            account="123456789012",
            queues=("billing-", "mail"),
            actions=frozenset({"SendMessage", "ListQueues"}),
            token=TOKEN,
        ),
    ]
    assert len(keys) == 2
    assert keys.get("AKIDADMIN") == AccessKey("AKIDADMIN", SECRET, account="000000000000")
    assert keys.get("akidadmin") is None


def test_the_environment_names_the_same_keys() -> None:
    keys = Keys.from_environment(
        {
            "PATH": "/bin",
            "FAIRTURN_KEY_ADMIN_ID": "AKIDADMIN",
            "FAIRTURN_KEY_ADMIN_SECRET": SECRET,
            "FAIRTURN_KEY_THE_BILLING_ID": "AKIDBILLING",
            "FAIRTURN_KEY_THE_BILLING_SECRET": SECRET + "2",
            "FAIRTURN_KEY_THE_BILLING_ACCOUNT": "123456789012",
            "FAIRTURN_KEY_THE_BILLING_QUEUES": "billing-, mail",
            "FAIRTURN_KEY_THE_BILLING_ACTIONS": "SendMessage,ListQueues",
            "FAIRTURN_KEY_THE_BILLING_TOKEN": TOKEN,
        },
    )
    assert list(keys) == list(Keys.from_mapping(tomllib.loads(CONFIG)["keys"]))


def test_no_keys_are_no_keys() -> None:
    assert len(Keys.from_environment({"HOME": "/"})) == len(Keys.from_mapping({})) == 0


def test_a_key_without_limits_may_do_everything() -> None:
    key = AccessKey("a", "s")
    assert key.allows("DeleteQueue", "orders")
    assert key.allows("ListQueues", None)


@pytest.mark.parametrize(
    ("queue", "allowed"),
    [
        ("billing-in", True),
        ("billing-", True),
        ("mail", True),
        ("mailing", True),
        ("billing", False),
        ("Billing-in", False),
        ("x-billing-in", False),
        ("", False),
    ],
)
def test_queues_are_allowed_by_how_their_names_begin(queue: str, allowed: bool) -> None:
    key = AccessKey("a", "s", queues=("billing-", "mail"))
    assert key.allows("SendMessage", queue) is allowed
    assert key.allows("CreateQueue", queue) is allowed


def test_an_action_without_a_queue_is_asked_again_with_each() -> None:
    key = AccessKey("a", "s", queues=("mail",), actions=frozenset({"ListQueues"}))
    assert key.allows("ListQueues", None)
    found = ["mail", "orders", "mail-2"]
    assert [name for name in found if key.allows("ListQueues", name)] == ["mail", "mail-2"]


def test_actions_are_allowed_by_name_and_batches_by_their_single_action() -> None:
    key = AccessKey("a", "s", actions=frozenset({"SendMessage"}))
    assert key.allows("SendMessage", "q")
    assert key.allows("SendMessageBatch", "q")
    for action in ("ReceiveMessage", "DeleteMessageBatch", "sendmessage", "ListQueues", "Batch"):
        assert not key.allows(action, "q")
    assert not key.allows("ListQueues", None)


def test_every_denied_action_on_every_denied_queue_is_denied() -> None:
    key = AccessKey("a", "s", queues=("mine",), actions=frozenset({"SendMessage"}))
    allowed = {
        (action, queue)
        for action in ACTIONS
        for queue in ("mine", "mine-2", "theirs", "Mine")
        if key.allows(action, queue)
    }
    assert allowed == {
        (action, queue)
        for action in ("SendMessage", "SendMessageBatch")
        for queue in ("mine", "mine-2")
    }


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "keys.AKID: the secret is missing"),
        (SECRET, "keys.AKID must be a table of secret, account, queues, actions, token"),
        ({"secret": ""}, "access key AKID: its secret is empty"),
        ({"secret": 5}, "keys.AKID: secret must be a string, in quotes"),
        ({"secret": [SECRET]}, "keys.AKID: secret must be a string, in quotes"),
        ({"secert": SECRET}, "keys.AKID: 'secert' is not one of secret, "),
        ({"secret": SECRET, "account": 123456789012}, "account must be a string, in quotes"),
        ({"secret": SECRET, "account": "12"}, "an account has twelve digits"),
        ({"secret": SECRET, "account": "١٢٣٤٥٦٧٨٩٠١٢"}, "an account has twelve digits"),
        ({"secret": SECRET, "account": ""}, "an account has twelve digits"),
        ({"secret": SECRET, "queues": "mail"}, "queues must be a list of strings"),
        ({"secret": SECRET, "queues": ["a", 1]}, "queues must be a list of strings"),
        ({"secret": SECRET, "queues": []}, "queues is empty, which allows nothing"),
        ({"secret": SECRET, "queues": [""]}, "an entry of queues is empty"),
        ({"secret": SECRET, "actions": []}, "actions is empty, which allows nothing"),
        ({"secret": SECRET, "actions": ["Send"]}, "keys.AKID: there is no action 'Send'"),
        ({"secret": SECRET, "actions": ["SendMessageBatch"]}, "write SendMessage, which includes"),
        ({"secret": SECRET, "token": ""}, "its token is empty: leave it out"),
    ],
)
def test_mistakes_are_named_and_secrets_are_not(fields: object, text: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        Keys.from_mapping({"AKID": fields})
    assert text in str(raised.value)
    assert SECRET not in repr(raised.value)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"FAIRTURN_KEY_A_SECRET": SECRET}, "FAIRTURN_KEY_A_ID is not set"),
        ({"FAIRTURN_KEY_A_ID": "AKID"}, "FAIRTURN_KEY_A: the secret is missing"),
        ({"FAIRTURN_KEY_SECRET": SECRET}, "FAIRTURN_KEY_SECRET is not understood"),
        ({"FAIRTURN_KEY_A_PASSWORD": SECRET}, "FAIRTURN_KEY_A_PASSWORD is not understood"),
        (
            {
                "FAIRTURN_KEY_A_ID": "AKID",
                "FAIRTURN_KEY_A_SECRET": SECRET,
                "FAIRTURN_KEY_A_QUEUES": " ",
            },
            "queues is empty, which allows nothing",
        ),
        (
            {
                "FAIRTURN_KEY_A_ID": "AKID",
                "FAIRTURN_KEY_A_SECRET": SECRET,
                "FAIRTURN_KEY_A_QUEUES": "a,,b",
            },
            "an entry of queues is empty",
        ),
        (
            {f"FAIRTURN_KEY_{n}_{part}": "AKID" for n in "AB" for part in ("ID", "SECRET")},
            "access key AKID is configured twice",
        ),
    ],
)
def test_mistakes_in_the_environment_are_named(environment: Mapping[str, str], text: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        Keys.from_environment(environment)
    assert text in str(raised.value)
    assert SECRET not in repr(raised.value)


@pytest.mark.parametrize("id", ["", "a/b", "a b", "a,b", "a=b", "ä", "a\n", "x" * 129, SECRET])
def test_an_id_that_cannot_be_in_a_signature_is_refused(id: str) -> None:
    with pytest.raises(InvalidArgument, match="an access key's id has 1 to 128") as raised:
        AccessKey(id, "secret")
    assert SECRET not in repr(raised.value)
    with pytest.raises(InvalidArgument, match="an access key's id has 1 to 128"):
        Keys.from_mapping({id: {}})


def test_keys_from_two_places_are_put_together() -> None:
    one, other = Keys([AccessKey("a", "s")]), Keys([AccessKey("b", "s")])
    assert [key.id for key in Keys([*one, *other])] == ["a", "b"]
    with pytest.raises(InvalidArgument, match="access key a is configured twice"):
        Keys([*one, *one])


def test_no_repr_shows_a_secret() -> None:
    keys = Keys.from_mapping(tomllib.loads(CONFIG)["keys"])
    shown = repr([keys, *keys]) + str(keys) + f"{list(keys)}"
    assert "AKIDBILLING" in shown
    assert SECRET not in shown
    assert TOKEN not in shown


def test_a_star_is_not_a_beginning() -> None:
    with pytest.raises(InvalidArgument, match='write "shop-"'):
        AccessKey("AKID", "secret", queues=("shop-*",))
