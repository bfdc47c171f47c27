"""Another Fairlead database as a destination: from the edge to the centre.

Each message is sent ``once`` under its identity, so that a crash between the two databases does not
send it twice: for ``once_for`` seconds the centre knows what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

from fairlead.aio.database import AsyncDatabase, connect_async
from fairlead.aio.running import be_patient
from fairlead.encoded import Json
from fairlead.errors import ChannelFull, DatabaseError, FairleadError, QueueNotFound, SchemaOutdated
from fairlead.relay.destination import DestinationError, Later, Never, Outcome, Parcel
from fairlead.values import EPOCH, Send

ONCE_FOR = 86_400.0
WITHIN = 20.0  # seconds for an answer; what was sent and not heard of is sent again, once


class FairleadDestination:
    """A queue of another database. Due times travel with the messages, keys do not: a key is unique
    in its own database."""

    most = 500

    def __init__(
        self,
        db: AsyncDatabase,
        queue: str,
        *,
        ahead: float = 900.0,
        once_for: float = ONCE_FOR,
        own: bool = False,
    ) -> None:
        self.ahead = ahead
        self.shown = f"{db.target.shown}#{queue}"
        self._db = db
        self._queue = db.queue(queue)
        self._once_for = once_for
        self._own = own

    async def hand_over(self, parcels: Sequence[Parcel], now_us: int) -> Sequence[Outcome]:
        outcome = await self._send(parcels)
        if outcome is None or len(parcels) == 1 or (isinstance(outcome, Later) and outcome.down):
            return [outcome] * len(parcels)
        # All or nothing was nothing: find those it was about.
        return [await self._send([parcel]) for parcel in parcels]

    async def _send(self, parcels: Sequence[Parcel]) -> Outcome:
        try:
            await self._queue.send_many([self._copy(parcel) for parcel in parcels])
        except QueueNotFound:
            how = f"fairlead queue create {self._queue.name} --db '{self._db.target.shown}'"
            return Later(f"there is no queue {self._queue.name!r} there: {how}", down=True)
        except SchemaOutdated:
            how = f"fairlead migrate --db '{self._db.target.shown}'"
            return Later(f"Fairlead's tables are missing or out of date there: {how}", down=True)
        except DatabaseError as error:
            return Later(str(error), down=True)
        except ChannelFull as error:
            return Later(str(error))
        except FairleadError as error:
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
            once_for=self._once_for,
        )

    async def close(self) -> None:
        if self._own:
            await self._db.close()


def destination_for(address: str) -> FairleadDestination:
    url, _, queue = address.partition("#")
    file = url.removeprefix("sqlite:///") if url.startswith("sqlite:///") else None
    if file is not None and not Path(unquote(file)).exists():
        raise DestinationError(
            f"there is no file {file}: correct the path, or create it with its queue first"
        )
    db = connect_async(url, pool_size=4)
    be_patient(db.runner, WITHIN)
    return FairleadDestination(db, queue, own=True)
