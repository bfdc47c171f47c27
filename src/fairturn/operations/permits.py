"""Permits: the registrations of live workers (semantics §6)."""

from __future__ import annotations

from fairturn.backends.steps import Op
from fairturn.backends.verbs import new_token
from fairturn.core import check
from fairturn.core.errors import InvalidArgument, PermitLost
from fairturn.core.values import Duration, PermitStatus, moment
from fairturn.operations.call import Call, Core


def create(core: Core, name: str, ttl: Duration) -> Call[int]:
    check.name(name, "permit", empty=True)
    ttl_us = check.microseconds(ttl, "ttl")
    if ttl_us == 0:
        raise InvalidArgument("ttl must be more than 0 seconds: the permit would expire at once")

    def start() -> Op[int]:
        id = new_token()  # a number from a sequence could come again after a failover
        yield from core.backend.permit_create(id, name, ttl_us, core.now())
        return id

    return Call("permit", start, repeatable=True)


def extend(core: Core, permit: int, ttl: Duration) -> Call[None]:
    ttl_us = check.microseconds(ttl, "ttl")

    def start() -> Op[None]:
        if not (yield from core.backend.permit_extend(permit, ttl_us, core.now())):
            raise PermitLost(permit)

    return Call("extend", start, repeatable=True)


def close(core: Core, permit: int) -> Call[None]:
    return Call("close", lambda: core.backend.permit_close(permit, core.now()), repeatable=True)


def permits(core: Core) -> Call[list[PermitStatus]]:
    def start() -> Op[list[PermitStatus]]:
        rows = yield from core.backend.permits(core.now())
        return [
            PermitStatus(id, name, moment(created), moment(expires), leases)
            for id, name, created, expires, leases in rows
        ]

    return Call("permits", start, repeatable=True)
