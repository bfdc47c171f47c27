"""Access keys: their secrets, and the queues and actions that each may use.

    [keys.AKIDBILLING]
    secret  = "..."
    account = "123456789012"               # default: 000000000000
    queues  = ["billing-", "mail"]         # prefixes of queue names; default: all queues
    actions = ["SendMessage", "GetQueueUrl"]  # default: all actions
    token   = "..."                        # the session token to require; default: any or none

The same can be set in the environment, with one group of variables for each key; the name in the
middle only identifies the group: ``FAIRTURN_KEY_BILLING_ID``, ``…_SECRET``, ``…_ACCOUNT``,
``…_QUEUES`` and ``…_ACTIONS`` (separated by commas), ``…_TOKEN``.

As in AWS's policies, the right to an action includes its batch form: SendMessage includes
SendMessageBatch. No secret or token appears in a repr or an error.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from fairturn.core.errors import InvalidArgument
from fairturn.server.sqs.wire.action_table import ACTIONS

ACCOUNT = "000000000000"  # of keys without an account
_PREFIX = "FAIRTURN_KEY_"
_FIELDS = ("secret", "account", "queues", "actions", "token")
_LISTS = ("queues", "actions")
# A key's id is a part of the signature's scope, whose separators it must not contain.
_ID_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_.")
_ID_LENGTH = 128


@dataclass(frozen=True, slots=True)
class AccessKey:
    """One key. ``queues`` are prefixes of names; None for queues or actions allows them all."""

    id: str
    secret: str = field(repr=False)
    account: str = ACCOUNT
    queues: tuple[str, ...] | None = None
    actions: frozenset[str] | None = None
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_id(self.id)
        if not self.secret:
            raise InvalidArgument(f"access key {self.id}: its secret is empty")
        if self.token == "":
            raise InvalidArgument(
                f"access key {self.id}: its token is empty: leave it out to accept any token"
            )
        if len(self.account) != 12 or not (self.account.isascii() and self.account.isdigit()):
            raise InvalidArgument(
                f"access key {self.id}: an account has twelve digits, like 123456789012 "
                "(write quotes, or leading zeros are lost)"
            )
        for name, allowed in (("queues", self.queues), ("actions", self.actions)):
            if allowed is not None and not all(allowed):
                raise InvalidArgument(f"access key {self.id}: an entry of {name} is empty")
            if allowed is not None and not allowed:
                raise InvalidArgument(
                    f"access key {self.id}: {name} is empty, which allows nothing: "
                    f"leave it out to allow all {name}, or name some"
                )
        for prefix in self.queues or ():
            if "*" in prefix:
                raise InvalidArgument(
                    f"access key {self.id}: queues are prefixes of names, without a *: "
                    'write "shop-" for all names that begin with shop-'
                )
        for action in sorted(self.actions or ()):
            if action != _single(action):
                raise InvalidArgument(
                    f"access key {self.id}: write {_single(action)}, which includes {action}"
                )

    def allows(self, action: str, queue: str | None) -> bool:
        """Whether this key may do ``action`` with the queue of this name, which need not exist.

        ``queue`` is None for an action without one queue, such as ListQueues. Then call this again
        for each queue of the result.
        """
        if self.actions is not None and _single(action) not in self.actions:
            return False
        return queue is None or self.queues is None or queue.startswith(self.queues)


class Keys:
    """The keys of a server, by id."""

    def __init__(self, keys: Iterable[AccessKey] = ()) -> None:
        self._by_id: dict[str, AccessKey] = {}
        for key in keys:
            if key.id in self._by_id:
                raise InvalidArgument(f"access key {key.id} is configured twice: remove one")
            self._by_id[key.id] = key

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> Keys:
        """Read keys from a mapping of ids to fields, as in a configuration file."""
        return cls(_key(id, fields, f"keys.{id}") for id, fields in mapping.items())

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Keys:
        """Read keys from the variables that begin with FAIRTURN_KEY_."""
        found: dict[str, dict[str, object]] = {}
        for variable in sorted(environment):
            if variable.startswith(_PREFIX):
                name, part = _variable(variable)
                value = environment[variable]
                found.setdefault(name, {})[part] = _split(value) if part in _LISTS else value
        keys: list[AccessKey] = []
        for name, fields in found.items():
            id = fields.pop("id", None)
            if id is None:
                raise InvalidArgument(
                    f"{_PREFIX}{name}_ID is not set, but other variables of this key are"
                )
            keys.append(_key(str(id), fields, f"{_PREFIX}{name}"))
        return cls(keys)

    def get(self, id: str) -> AccessKey | None:
        return self._by_id.get(id)

    def __iter__(self) -> Iterator[AccessKey]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __repr__(self) -> str:
        return f"Keys({', '.join(self._by_id)})"


def _single(action: str) -> str:
    return action.removesuffix("Batch")


def _check_id(id: str) -> None:
    if not 0 < len(id) <= _ID_LENGTH or not _ID_CHARACTERS.issuperset(id):
        # Not shown: people swap an id and its secret.
        raise InvalidArgument(
            "an access key's id has 1 to 128 characters, of letters, digits, '-', '_' and '.'"
        )


def _key(id: str, fields: object, where: str) -> AccessKey:
    """Read one key of a configuration. An error names the place, never the value."""
    _check_id(id)  # first, since other errors show the id
    if not isinstance(fields, Mapping):
        raise InvalidArgument(f"{where} must be a table of {', '.join(_FIELDS)}")
    given = cast("Mapping[str, object]", fields)
    for name in given:
        if name not in _FIELDS:
            raise InvalidArgument(f"{where}: {name!r} is not one of {', '.join(_FIELDS)}")
    secret = _text(given, "secret", where)
    if secret is None:
        raise InvalidArgument(f"{where}: the secret is missing")
    account = _text(given, "account", where)
    queues = _texts(given, "queues", where)
    actions = _texts(given, "actions", where)
    for action in actions or ():
        if action not in ACTIONS:
            raise InvalidArgument(f"{where}: there is no action {action!r}")
    return AccessKey(
        id=id,
        secret=secret,
        account=ACCOUNT if account is None else account,
        queues=queues,
        actions=None if actions is None else frozenset(actions),
        token=_text(given, "token", where),
    )


def _text(fields: Mapping[str, object], name: str, where: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"{where}: {name} must be a string, in quotes")
    return value


def _texts(fields: Mapping[str, object], name: str, where: str) -> tuple[str, ...] | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        entries = cast("list[object] | tuple[object, ...]", value)
        texts = tuple(entry for entry in entries if isinstance(entry, str))
        if len(texts) == len(entries):
            return texts
    raise InvalidArgument(f'{where}: {name} must be a list of strings, like ["one", "two"]')


def _variable(variable: str) -> tuple[str, str]:
    """Return the name and the field of a variable: FAIRTURN_KEY_<NAME>_<FIELD>."""
    name, _, part = variable.removeprefix(_PREFIX).rpartition("_")
    if not name or part.lower() not in ("id", *_FIELDS):
        fields = ", ".join(field.upper() for field in ("id", *_FIELDS))
        raise InvalidArgument(
            f"{variable} is not understood: write {_PREFIX}<NAME>_<FIELD>, where FIELD is one of "
            f"{fields}"
        )
    return name, part.lower()


def _split(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",")] if value.strip() else []
