"""What a fuzzer does to a request: to a value of its tree, or to its bytes."""

from __future__ import annotations

import random
from typing import Any

ODD: list[Any] = [
    None, True, False, -1, 0, 11, 2**31, 2**63, -(2**63) - 1, 10**100, 1.5, 1e300, float("inf"),
    "", " ", "\0", "\ud800", "\udfff\ud800", "\ufffe", "\u202e", "é" * 300, "x" * 70_000,
    "1" * 5000, "../..", "%00", "'; --", "{", "[" * 5000, "a.fifo", ".fifo", "fairturn.sqs",
    "fairturn.sqs.moves", "http://[", "http://h/\0/%zz", "arn:aws:sqs:::", "YQ==", "AWS.x", "All",
    "*", [], {}, [[]], {"": ""}, [None], {"a": None}, ["x"] * 60, [{}] * 11, {"\0": "\0"},
    {"a": {"b": []}},
]  # fmt: skip


def spoil_value(rng: random.Random, tree: Any) -> Any:
    """The tree with one value replaced, removed, doubled or wrapped."""
    if not isinstance(tree, (dict, list)) or not tree or rng.random() < 0.2:
        match rng.randrange(6):
            case 0:
                return [tree] * rng.choice([1, 2, 11])
            case 1:
                return {rng.choice(["a", "", "DataType", "Id"]): tree}
            case 2 if isinstance(tree, str):
                at = rng.randrange(len(tree) + 1)
                return tree[:at] + rng.choice(["\0", "\ud800", "\x7f", " ", "é", "/"]) + tree[at:]
            case 3 if isinstance(tree, int):
                return rng.choice([str(tree), float(tree), -tree, tree + 2**31])
            case _:
                return rng.choice(ODD)
    if isinstance(tree, list):
        at = rng.randrange(len(tree))
        return [*tree[:at], spoil_value(rng, tree[at]), *tree[at + 1 :]]
    key = rng.choice(list(tree))
    spoiled = {name: value for name, value in tree.items() if name != key}
    match rng.randrange(8):
        case 0:
            return spoiled
        case 1:
            return spoiled | {str(rng.choice(ODD))[:2000]: tree[key]}
        case _:
            return spoiled | {key: spoil_value(rng, tree[key])}


def spoil_bytes(rng: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        if not found:
            break
        at = rng.randrange(len(found))
        match rng.randrange(5):
            case 0:
                found[at] = rng.randrange(256)
            case 1:
                del found[at : at + rng.randrange(1, 10)]
            case 2:
                found[at:at] = found[at : at + rng.randrange(1, 20)]
            case 3:
                del found[at:]
            case _:
                pieces = [
                    b"\r\n",
                    b"\0",
                    b"%",
                    b"{",
                    b'"',
                    b"\xff",
                    b"&",
                    b":",
                    b"\\ud800",
                    b"[" * 99,
                ]
                found[at:at] = rng.choice(pieces)
    return bytes(found)
