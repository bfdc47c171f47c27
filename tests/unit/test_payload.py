"""Arguments of tasks: there and back, and errors that name the argument."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypedDict
from uuid import UUID, uuid4

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairturn import InvalidArgument
from fairturn.tasks.payload import Payload


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Address:
    street: str
    number: int = 1


@dataclass
class User:
    name: str
    age: int | None = None
    home: Address | None = None
    tags: list[str] = field(default_factory=list[str])


class Options(TypedDict, total=False):
    fast: bool


class Size(TypedDict):
    width: int


def there_and_back(payload: Payload, *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    return payload.read(json.loads(json.dumps(payload.write(args, kwargs))))


def everything(
    user: User,
    when: datetime,
    day: date,
    at: time,
    took: timedelta,
    price: Decimal,
    id: UUID,
    raw: bytes,
    colour: Colour,
    pair: tuple[int, str],
    many: tuple[float, ...],
    seen: set[int],
    by_name: dict[str, Address],
    options: Options,
    kind: Literal["a", 1],
    either: int | str,
    anything: Any,
    plain=None,
) -> None: ...


def test_everything_there_and_back() -> None:
    given_ = {
        "user": User("Ann", 42, Address("Via Roma"), ["x"]),
        "when": datetime(2026, 11, 15, 12, tzinfo=UTC),
        "day": date(2026, 11, 15),
        "at": time(12, 30),
        "took": timedelta(days=1, microseconds=1),
        "price": Decimal("1.10"),
        "id": uuid4(),
        "raw": b"\x00\xff",
        "colour": Colour.BLUE,
        "pair": (1, "a"),
        "many": (1.0, 2.5),
        "seen": {1, 2},
        "by_name": {"home": Address("x", 2)},
        "options": {"fast": True},
        "kind": 1,
        "either": "text",
        "anything": [1, {"a": None}],
        "plain": "x",
    }
    assert there_and_back(Payload(everything), **given_) == ([], given_)


def some(first: int, *rest: int, last: str = "z", **more: float) -> None: ...


def test_positions_names_and_the_rest() -> None:
    assert there_and_back(Payload(some), 1, 2, 3, last="y", x=1) == (
        [1, 2, 3],
        {"last": "y", "x": 1.0},
    )
    assert there_and_back(Payload(some), 1) == ([], {"first": 1})


def greet(user: User, size: Size | None = None, colour: Colour = Colour.RED) -> None: ...


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "missing a required argument: 'user'"),
        ([1], "an object of arguments by name"),
        ({"user": {"name": 5}}, r"greet\(user\).name: not a string: 5"),
        ({"user": {}}, r"greet\(user\).name: is missing"),
        ({"user": {"name": "a", "x": 1}}, r"greet\(user\).x: a User has no such field"),
        ({"user": {"name": "a"}, "colour": "green"}, r"greet\(colour\): not one of 'red', 'blue'"),
        ({"user": {"name": "a"}, "who": 1}, "no argument is called 'who'"),
    ],
)
def test_what_is_received_is_checked(body: Any, error: str) -> None:
    with pytest.raises(InvalidArgument, match=error):
        Payload(greet).read(body)


def test_a_nested_field_is_named() -> None:
    body = {"user": {"name": "a", "tags": ["x", 5]}}
    with pytest.raises(InvalidArgument, match=r"greet\(user\).tags\[1\]: not a string: 5"):
        Payload(greet).read(body)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((5,), r"greet\(user\): not a User: 5"),
        ((User("a"), {"width": "x"}), r"greet\(size\)"),
        ((), "missing a required argument"),
        ((User(5),), r"greet\(user\).name: not a string: 5"),  # type: ignore[arg-type]
    ],
)
def test_what_is_sent_is_checked(args: tuple[Any, ...], error: str) -> None:
    with pytest.raises(InvalidArgument, match=error):
        Payload(greet).write(args, {})


def test_true_is_no_number_and_one_is_no_bool() -> None:
    def f(n: int, b: bool) -> None: ...

    for args in ((True, True), (1, 1)):
        with pytest.raises(InvalidArgument):
            Payload(f).write(args, {})


def test_what_json_cannot_carry_is_refused_when_the_task_is_declared() -> None:
    def f(connection: object, stream: type) -> None: ...

    with pytest.raises(InvalidArgument, match="stream: JSON cannot carry"):
        Payload(f)

    def g(x: int, /) -> None: ...

    with pytest.raises(InvalidArgument, match="by name"):
        Payload(g)


def test_skipped_parameters_are_not_the_senders() -> None:
    def f(ctx: type, n: int) -> None: ...

    assert there_and_back(Payload(f, skip=["ctx"]), 5) == ([], {"n": 5})


class PydanticModel(pydantic.BaseModel):
    n: int


class MsgspecModel(msgspec.Struct):
    n: int


@pytest.mark.parametrize("Model", [PydanticModel, MsgspecModel])
def test_models_of_pydantic_and_msgspec(Model: Any) -> None:
    def f(model: Any) -> None: ...

    f.__annotations__["model"] = Model
    assert there_and_back(Payload(f), Model(n=1)) == ([], {"model": Model(n=1)})
    with pytest.raises(InvalidArgument, match=r"f\(model\).*n"):
        Payload(f).read({"model": {"n": "x"}})


@given(
    st.lists(st.builds(User, st.text(), st.none() | st.integers(), st.none(), st.lists(st.text()))),
    st.dictionaries(st.text(), st.integers() | st.text()),
)
def test_any_value_comes_back(users: list[User], pairs: dict[str, int | str]) -> None:
    def f(users: list[User], pairs: dict[str, int | str]) -> None: ...

    assert there_and_back(Payload(f), users, pairs) == ([], {"users": users, "pairs": pairs})
