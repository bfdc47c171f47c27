"""A queue's own data (semantics §11.4)."""

from __future__ import annotations

import pytest

from fairturn import InvalidArgument, InvalidBody, QueueNotFound
from tests.conformance.door import ids

NASTY = {
    "": None,
    "a 'quote' \"two\" `three`": "back\\slash \\u0000 \x00 %s $1 ?1 :name {row}",
    "é 😀 e\u0301": ["\u202e", "\ud7ff\ue000", "\u2028"],
    "numbers": [0, -1, 2**70, 1.5, 1e300, -0.0],
    "nothing": [{}, [], "", False, None],
    "null": "null",
}
LIMIT = 64 * 1024


def sized(bytes: int) -> dict[str, str]:
    """Exactly so large when it is encoded: {"m":"x…"}."""
    return {"m": "x" * (bytes - 8)}


def deep(levels: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for _ in range(levels):
        found = {"d": found}
    return found


def test_a_queue_has_no_meta_unless_it_is_given(queue):
    assert queue.settings().meta == {}


def test_what_is_given_comes_back(make):
    queue = make(meta={"team": "mail", "tags": {"a": [1, None]}})
    assert queue.settings().meta == {"team": "mail", "tags": {"a": [1, None]}}


def test_anything_that_json_can_hold(make):
    queue = make(meta=NASTY)
    assert queue.settings().meta == NASTY
    assert list(queue.settings().meta) == list(NASTY)
    queue.set(meta=deep(200))
    assert queue.settings().meta == deep(200)


def test_set_replaces_it_whole(make):
    queue = make(meta={"a": 1, "b": 2})
    queue.set(meta={"c": 3})
    assert queue.settings().meta == {"c": 3}


def test_set_leaves_what_is_not_named(make):
    queue = make(meta={"a": 1}, lease=7)
    queue.set(max_attempts=3)
    queue.set_limit(max_concurrency=2)
    queue.pause()
    assert queue.settings().meta == {"a": 1}
    queue.set(meta={"a": 2})
    settings = queue.settings()
    assert (settings.lease, settings.max_attempts, settings.paused) == (7, 3, True)
    assert settings.meta == {"a": 2}


@pytest.mark.parametrize("nothing", [None, {}])
def test_it_can_be_taken_away(make, nothing):
    queue = make(meta={"a": 1})
    queue.set(meta=nothing)
    assert queue.settings().meta == {}
    queue.set(meta=nothing)
    assert queue.settings().meta == {}
    queue.set(meta={"b": 1})
    assert queue.settings().meta == {"b": 1}


def test_an_existing_queue_keeps_its_own(make):
    queue = make(meta={"a": 1})
    assert queue.create(meta={"b": 1}) is False
    assert queue.settings().meta == {"a": 1}


def test_every_queue_has_its_own(make):
    one, other, bare = make(meta={"n": 1}), make(meta={"n": 2}), make()
    assert [q.settings().meta for q in (one, other, bare)] == [{"n": 1}, {"n": 2}, {}]


def test_a_purge_leaves_it(make):
    queue = make(meta={"a": 1})
    queue.purge(reset=True)
    assert queue.settings().meta == {"a": 1}


def test_a_dropped_queue_takes_it_along(make):
    queue = make(meta={"a": 1})
    queue.drop()
    assert queue.create() is True
    assert queue.settings().meta == {}


def test_as_large_as_it_may_be(make):
    queue = make(meta=sized(LIMIT))
    assert queue.settings().meta == sized(LIMIT)
    queue.set(meta={"é": sized(LIMIT - len('{"é":}'.encode()))})
    assert len(queue.settings().meta["é"]["m"]) > LIMIT - 20


def test_it_is_nothing_to_the_messages(make):
    queue = make(meta=sized(LIMIT), dead_letter="nowhere")
    sent = queue.send_many([1, 2])
    messages = queue.receive(2)
    assert ids(messages) == sent
    messages[0].ack()
    messages[1].fail("no", delay=9)
    assert "scheduled" in queue.explain(id=messages[1].id).text
    assert queue.settings().meta == sized(LIMIT)


def test_a_set_that_is_rolled_back_changes_nothing(make, db):
    if not db.variant.yours:
        return
    queue = make(meta={"a": 1})
    with db.rolled_back() as connection:
        db.wait(queue.inner.using(connection).set(meta={"a": 2}))
    assert queue.settings().meta == {"a": 1}


# --- mistakes -----------------------------------------------------------------------------------


@pytest.mark.few_variants
@pytest.mark.parametrize("wrong", [[], [("a", 1)], "a", b"{}", 1, True])
def test_only_a_mapping_will_do(queue, wrong):
    with pytest.raises(InvalidArgument, match="meta must be a dict"):
        queue.set(meta=wrong)
    with pytest.raises(InvalidArgument, match="meta must be a dict"):
        queue.create(meta=wrong)


@pytest.mark.few_variants
def test_keys_are_strings(queue):
    with pytest.raises(InvalidArgument, match="keys of meta"):
        queue.set(meta={1: 2})


@pytest.mark.few_variants
@pytest.mark.parametrize("wrong", [object(), b"x", float("nan"), "\ud800"])
def test_only_json_will_do(queue, wrong):
    with pytest.raises(InvalidBody, match="meta"):
        queue.set(meta={"a": wrong})


@pytest.mark.few_variants
def test_too_large(queue):
    for large in (sized(LIMIT + 1), {"é" * (LIMIT // 2): 1}):
        with pytest.raises(InvalidArgument, match=r"meta has .* at most 65,536"):
            queue.set(meta=large)
    assert queue.settings().meta == {}


@pytest.mark.few_variants
def test_of_an_unknown_queue(db):
    with pytest.raises(QueueNotFound):
        db.queue("no such queue").set(meta={"a": 1})
