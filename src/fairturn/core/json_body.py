"""A body that is JSON text already."""

from __future__ import annotations

import json
from typing import Any

from fairturn.core.errors import InvalidArgument


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_parse = json.JSONDecoder(parse_constant=_refuse).decode


class Json:
    """JSON text (str, or bytes in UTF-8) as a body. It is stored unchanged: ``message.raw`` returns
    it, ``message.body`` decodes it. Raises InvalidArgument if the text is not JSON."""

    __slots__ = ("raw",)

    def __init__(self, text: str | bytes) -> None:
        if not isinstance(text, str | bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(
                f"Json() takes JSON text as str or bytes, not {type(text).__name__}: send a value "
                "without Json()"
            )
        try:
            _parse(text if isinstance(text, str) else text.decode())
            self.raw = text.encode() if isinstance(text, str) else text
        except RecursionError:
            raise InvalidArgument("the JSON is nested too deeply to be read again") from None
        except ValueError as error:  # also wrong UTF-8, or lone surrogates
            raise InvalidArgument(f"this is not JSON: {error}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Json) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        # Without the text: logs contain reprs.
        return f"<Json of {len(self.raw)} bytes>"
