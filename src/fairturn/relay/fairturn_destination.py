"""Another Fairturn database as a destination.

Each message is sent with its identity as the once name. So a crash between the two databases does
not send it twice, because the other database remembers the name for a day.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

from fairturn import internal
from fairturn.aio.database import AsyncDatabase, connect_async
from fairturn.core.errors import (
    ChannelFull,
    DatabaseError,
    FairturnError,
    QueueNotFound,
    SchemaOutdated,
)
from fairturn.core.json_body import Json
from fairturn.core.sends import Send
from fairturn.core.values import EPOCH
from fairturn.relay.destination import DestinationError, Later, Never, Outcome, Parcel

ONCE_FOR = 86_400.0  # seconds for which the other database remembers a message
WITHIN = 20.0  # seconds for an answer; without one, the messages are sent again


class FairturnDestination:
    """A queue of another database. Messages keep their due times, but not their keys: a key is
    unique in its own database only."""

    most = 500
    ahead = 900.0

    def __init__(self, db: AsyncDatabase, queue: str, *, own: bool = False) -> None:
        self.shown = f"{db.target.shown}#{queue}"
        self._db = db
        self._queue = db.queue(queue)
        self._own = own

    async def hand_over(self, parcels: Sequence[Parcel], now_us: int) -> Sequence[Outcome]:
        outcome = await self._send(parcels)
        if outcome is None or len(parcels) == 1 or (isinstance(outcome, Later) and outcome.down):
            return [outcome] * len(parcels)
        # send_many stores all or nothing: send one by one, to find the wrong ones.
        return [await self._send([parcel]) for parcel in parcels]

    async def _send(self, parcels: Sequence[Parcel]) -> Outcome:
        try:
            await self._queue.send_many([self._copy(parcel) for parcel in parcels])
        except QueueNotFound:
            how = f"fairturn queue create {self._queue.name} --db '{self._db.target.shown}'"
            return Later(f"the other database has no queue {self._queue.name!r}: {how}", down=True)
        except SchemaOutdated:
            how = f"fairturn migrate --db '{self._db.target.shown}'"
            return Later(f"the other database's schema is missing or outdated: {how}", down=True)
        except DatabaseError as error:
            return Later(str(error), down=True)
        except ChannelFull as error:
            return Later(str(error))
        except FairturnError as error:
            return Never(str(error))
        return None

    def _copy(self, parcel: Parcel) -> Send:
        message = parcel.message
        return Send(
            Json(message.raw) if message.is_json else message.raw,
            channel=message.channel,
            priority=message.priority,
            at=EPOCH + timedelta(microseconds=parcel.due_us),
            version=message.version,
            type=message.type,
            headers=message.headers,
            once=parcel.identity,
            once_for=ONCE_FOR,
        )

    async def close(self) -> None:
        if self._own:
            await self._db.close()


def destination_for(address: str) -> FairturnDestination:
    url, _, queue = address.partition("#")
    file = url.removeprefix("sqlite:///") if url.startswith("sqlite:///") else None
    if file is not None and not Path(unquote(file)).exists():
        raise DestinationError(
            f"there is no file {file}: correct the path, or create the database and queue first"
        )
    db = connect_async(url, pool_size=4)
    internal.set_answer_timeout(db, WITHIN)
    return FairturnDestination(db, queue, own=True)
