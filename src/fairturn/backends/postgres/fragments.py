"""The lists of policy columns in statements.sql, made from the table of the fields."""

from __future__ import annotations

from fairturn.core.kinds import Count, Flag, Kind, Rate
from fairturn.core.settings import DEFAULT_POLICY, POLICY_FIELDS, PolicyRow

_TYPES: dict[type[Kind], str] = {Count: "int", Rate: "bigint", Flag: "int"}
_KINDS = [(column, type(line.kind)) for line in POLICY_FIELDS.values() for column in line.columns]
_DEFAULTS = zip(PolicyRow._fields, DEFAULT_POLICY, strict=True)


def _arguments(form: str) -> str:
    """The arguments of the function policy_set, which takes flags as booleans."""
    return ", ".join(
        f"p_{column} => {form.format(column, _TYPES[kind])}{' <> 0' if kind is Flag else ''}"
        for column, kind in _KINDS
    )


FRAGMENTS = {
    "policy": ", ".join(PolicyRow._fields),
    "own_policy": ", ".join(f"p.{column}" for column in PolicyRow._fields),
    # A channel's own policy replaces the default one as a whole: its NULLs count, too.
    "effective_policy": ", ".join(
        f"CASE WHEN p.queue_id IS NULL THEN q.{default} ELSE p.{column} END"
        for column, default in _DEFAULTS
    ),
    "policy_arguments": _arguments(":{}::{}"),
    "policy_arrays": ", ".join(f":{column}::text::{_TYPES[kind]}[]" for column, kind in _KINDS),
    "each_policy_arguments": _arguments("x.{}"),
}
