"""A body that is encoded already."""

from __future__ import annotations

import json
from typing import Any

from fairlead.errors import InvalidArgument


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_parse = json.JSONDecoder(parse_constant=_refuse).decode


class Json:
    """JSON text (str, or bytes in UTF-8) as a body: stored byte for byte, and decoded by
    ``message.body`` as any JSON; ``message.raw`` is exactly what was given. Text that is no JSON
    raises InvalidArgument here."""

    __slots__ = ("raw",)

    def __init__(self, text: str | bytes) -> None:
        if not isinstance(text, str | bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(
                f"Json() takes JSON text as str or bytes, not {type(text).__name__}: a value is "
                "sent as it is, without Json()"
            )
        try:
            _parse(text if isinstance(text, str) else text.decode())
            self.raw = text.encode() if isinstance(text, str) else text
        except RecursionError:
            raise InvalidArgument("the JSON is nested too deeply to be read again") from None
        except ValueError as error:  # also of the encoding: UTF-8, without lone surrogates
            raise InvalidArgument(f"this is not JSON: {error}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Json) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        # No text: reprs end up in logs.
        return f"<Json of {len(self.raw)} bytes>"
