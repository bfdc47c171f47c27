"""Access keys: who may ask a server, with which secret, for which queues and actions.

    [keys.AKIDBILLING]
    secret  = "..."
    account = "123456789012"               # 000000000000 unless said
    queues  = ["billing-", "mail"]         # queues whose names begin so; every queue unless said
    actions = ["SendMessage", "GetQueueUrl"]  # every action unless said
    token   = "..."                        # a session token to insist on; any or none unless said

The same from the environment, one set of variables a key; the part in the middle only tells them
apart: ``FAIRLEAD_KEY_BILLING_ID``, ``…_SECRET``, ``…_ACCOUNT``, ``…_QUEUES`` and ``…_ACTIONS``
(separated by commas), ``…_TOKEN``.

As in AWS's own policies, a batch action is allowed by its single one: SendMessageBatch by
SendMessage. No secret or token appears in a repr or an error.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from fairlead.errors import InvalidArgument

ACCOUNT = "000000000000"  # of keys that name none
_PREFIX = "FAIRLEAD_KEY_"
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
            raise InvalidArgument(f"access key {self.id}: its secret is empty: give it one")
        if self.token == "":
            raise InvalidArgument(
                f"access key {self.id}: its token is empty: leave it out to accept any"
            )
        if len(self.account) != 12 or not (self.account.isascii() and self.account.isdigit()):
            raise InvalidArgument(
                f"access key {self.id}: an account has twelve digits, like 123456789012 "
                "(in quotes, or leading zeros are lost)"
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
                    f"access key {self.id}: queues are beginnings of names, without a *: "
                    'write "shop-" for all that begin so'
                )
        for action in sorted(self.actions or ()):
            if action != _single(action):
                raise InvalidArgument(
                    f"access key {self.id}: {action} is allowed by {_single(action)}: name that"
                )

    def allows(self, action: str, queue: str | None) -> bool:
        """Whether this key may do ``action`` with the queue of this name, existing or not.

        None for an action without one queue, like ListQueues: ask again with the name of each
        queue found before it is shown.
        """
        if self.actions is not None and _single(action) not in self.actions:
            return False
        return queue is None or self.queues is None or queue.startswith(self.queues)


class Keys:
    """The keys a server knows, by id."""

    def __init__(self, keys: Iterable[AccessKey] = ()) -> None:
        self._by_id: dict[str, AccessKey] = {}
        for key in keys:
            if key.id in self._by_id:
                raise InvalidArgument(f"access key {key.id} is configured twice: remove one")
            self._by_id[key.id] = key

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object], *, actions: Iterable[str] = ()) -> Keys:
        """From a mapping of ids to fields, as a configuration file has them.

        ``actions``: the names there are, to find spelling mistakes; not checked when empty.
        """
        known = frozenset(actions)
        return cls(_key(id, fields, f"keys.{id}", known) for id, fields in mapping.items())

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], *, actions: Iterable[str] = ()
    ) -> Keys:
        """From variables that begin with FAIRLEAD_KEY_."""
        found: dict[str, dict[str, object]] = {}
        for variable in sorted(environment):
            if variable.startswith(_PREFIX):
                name, part = _variable(variable)
                value = environment[variable]
                found.setdefault(name, {})[part] = _split(value) if part in _LISTS else value
        known = frozenset(actions)
        keys: list[AccessKey] = []
        for name, fields in found.items():
            id = fields.pop("id", None)
            if id is None:
                raise InvalidArgument(f"{_PREFIX}{name}_ID is not set, but others of its key are")
            keys.append(_key(str(id), fields, f"{_PREFIX}{name}", known))
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


def _key(id: str, fields: object, where: str, known: frozenset[str]) -> AccessKey:
    """A key from what a configuration says of it; an error names the place, never the value."""
    _check_id(id)  # first, since the other errors show it
    if not isinstance(fields, Mapping):
        raise InvalidArgument(f"{where}: a table of {', '.join(_FIELDS)} is needed")
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
        if known and action not in known:
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
        raise InvalidArgument(f"{where}: {name} must be a text, in quotes")
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
    raise InvalidArgument(f'{where}: {name} must be a list of texts, like ["one", "two"]')


def _variable(variable: str) -> tuple[str, str]:
    """The name and the field of a variable: FAIRLEAD_KEY_<NAME>_<FIELD>."""
    name, _, part = variable.removeprefix(_PREFIX).rpartition("_")
    if not name or part.lower() not in ("id", *_FIELDS):
        fields = ", ".join(field.upper() for field in ("id", *_FIELDS))
        raise InvalidArgument(
            f"{variable} is not understood: {_PREFIX}<NAME>_<FIELD>, with one of {fields}"
        )
    return name, part.lower()


def _split(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",")] if value.strip() else []
