"""Sqs: the parts of one server process, and the table of action functions.

    queue_cache    the queues' settings, at most a second old
    traffic        coalesced sends, receives and deletes, long polls
    moves          move tasks
    mover          carries out move tasks in the background

An action is a plain async function of (sqs, request). It calls the queue and returns a result for
`wire` to render, or raises an SqsError. A dropped queue becomes an SqsError here; an unreachable
database is handled by the HTTP door.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from fairturn.aio.database import AsyncDatabase
from fairturn.core.errors import QueueNotFound
from fairturn.server.sqs.actions import finish, moves, queues, receive, send, tags
from fairturn.server.sqs.message_mover import Mover
from fairturn.server.sqs.move_tasks import Moves
from fairturn.server.sqs.queue_cache import QueueCache
from fairturn.server.sqs.request import Options, SqsRequest
from fairturn.server.sqs.traffic.traffic import Traffic
from fairturn.sqs import errors


class Sqs:
    def __init__(self, db: AsyncDatabase, options: Options) -> None:
        self.db = db
        self.options = options
        self.queue_cache = QueueCache(db, options)
        self.traffic = Traffic(db)
        self.moves = Moves(db)
        self.mover = Mover(db, self.moves)

    async def start(self) -> None:
        """Start the background tasks. The database must be migrated."""
        self.mover.start()

    async def close(self) -> None:
        """Give open polls an empty answer and finish running statements. The database stays
        open."""
        await self.traffic.close()
        await self.mover.close()

    async def answer(self, request: SqsRequest) -> Mapping[str, Any] | None:
        """Run the action and return its result, as in the wire's table; None if it has none."""
        try:
            return await ACTION_FUNCTIONS[request.action](self, request)
        except QueueNotFound as error:
            # Dropped since its settings were cached: by another process, or by the library.
            self.queue_cache.forget(error.queue)
            raise errors.QUEUE_DOES_NOT_EXIST() from error


ActionFunction: TypeAlias = Callable[[Sqs, SqsRequest], Awaitable[Mapping[str, Any] | None]]

ACTION_FUNCTIONS: Mapping[str, ActionFunction] = MappingProxyType(
    {
        # --- queues ---
        "CreateQueue": queues.create_queue,
        "DeleteQueue": queues.delete_queue,
        "GetQueueUrl": queues.get_queue_url,
        "ListQueues": queues.list_queues,
        "GetQueueAttributes": queues.get_queue_attributes,
        "SetQueueAttributes": queues.set_queue_attributes,
        "PurgeQueue": queues.purge_queue,
        "ListDeadLetterSourceQueues": queues.list_dead_letter_source_queues,
        # --- tags and permissions ---
        "TagQueue": tags.tag_queue,
        "UntagQueue": tags.untag_queue,
        "ListQueueTags": tags.list_queue_tags,
        "AddPermission": tags.add_permission,
        "RemovePermission": tags.remove_permission,
        # --- messages ---
        "SendMessage": send.send_message,
        "SendMessageBatch": send.send_message_batch,
        "ReceiveMessage": receive.receive_message,
        "DeleteMessage": finish.delete_message,
        "DeleteMessageBatch": finish.delete_message_batch,
        "ChangeMessageVisibility": finish.change_message_visibility,
        "ChangeMessageVisibilityBatch": finish.change_message_visibility_batch,
        # --- moving dead letters back ---
        "StartMessageMoveTask": moves.start_message_move_task,
        "ListMessageMoveTasks": moves.list_message_move_tasks,
        "CancelMessageMoveTask": moves.cancel_message_move_task,
    }
)
