"""Sqs: what one process of the server has, and the one table of actions.

    book       what is known of the queues
    traffic    messages on their way: gathered sends, receives and deletes, long polls
    moves      move tasks, and the mover that carries them out in the background

An action is a plain async function of (sqs, ask). It calls the core and returns what `wire`
renders, or raises an SqsError; a queue that is gone becomes one here, a database that is away is
the door's to tell.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.queue import AsyncQueue
from fairlead.errors import QueueNotFound
from fairlead.server.sqs import (
    errors,
    finish_actions,
    move_actions,
    moves,
    queue_actions,
    receive_actions,
    send_actions,
    tag_actions,
)
from fairlead.server.sqs.asking import Ask, Options
from fairlead.server.sqs.book import Book
from fairlead.server.sqs.moving import Mover
from fairlead.server.sqs.traffic import Traffic


class Sqs:
    def __init__(self, db: AsyncDatabase, options: Options) -> None:
        self.db = db
        self.options = options
        self.book = Book(db, options)
        self.traffic = Traffic(db)
        self.moves = moves.Moves(db)
        self.mover = Mover(db, self.moves)

    async def start(self) -> None:
        """Begin what goes on in the background. The database must be migrated."""
        self.mover.start()

    async def close(self) -> None:
        """Answer the open polls, with nothing, and let what is on its way arrive. The database is
        left open."""
        await self.traffic.close()
        await self.mover.close()

    async def answer(self, ask: Ask) -> Mapping[str, Any] | None:
        """What the action gives, by the table of `actions`; None from a void one."""
        act = ACTS.get(ask.action)
        if act is None:
            raise errors.INVALID_ACTION(
                f"The action {ask.action[:80]} is not valid for this endpoint."
            )
        try:
            return await act(self, ask)
        except QueueNotFound as error:
            # Dropped since the book was last asked: by another process, or the library.
            self.book.forget(error.queue)
            raise errors.QUEUE_DOES_NOT_EXIST() from error

    async def internal(self) -> AsyncQueue:
        """The server's own queue, where it remembers what belongs to no other."""
        return await moves.internal(self.db)


Act: TypeAlias = Callable[[Sqs, Ask], Awaitable[Mapping[str, Any] | None]]

ACTS: Mapping[str, Act] = MappingProxyType(
    {
        # --- queues ---
        "CreateQueue": queue_actions.create_queue,
        "DeleteQueue": queue_actions.delete_queue,
        "GetQueueUrl": queue_actions.get_queue_url,
        "ListQueues": queue_actions.list_queues,
        "GetQueueAttributes": queue_actions.get_queue_attributes,
        "SetQueueAttributes": queue_actions.set_queue_attributes,
        "PurgeQueue": queue_actions.purge_queue,
        "ListDeadLetterSourceQueues": queue_actions.list_dead_letter_source_queues,
        # --- tags and permissions ---
        "TagQueue": tag_actions.tag_queue,
        "UntagQueue": tag_actions.untag_queue,
        "ListQueueTags": tag_actions.list_queue_tags,
        "AddPermission": tag_actions.add_permission,
        "RemovePermission": tag_actions.remove_permission,
        # --- messages ---
        "SendMessage": send_actions.send_message,
        "SendMessageBatch": send_actions.send_message_batch,
        "ReceiveMessage": receive_actions.receive_message,
        "DeleteMessage": finish_actions.delete_message,
        "DeleteMessageBatch": finish_actions.delete_message_batch,
        "ChangeMessageVisibility": finish_actions.change_message_visibility,
        "ChangeMessageVisibilityBatch": finish_actions.change_message_visibility_batch,
        # --- moving dead letters back ---
        "StartMessageMoveTask": move_actions.start_message_move_task,
        "ListMessageMoveTasks": move_actions.list_message_move_tasks,
        "CancelMessageMoveTask": move_actions.cancel_message_move_task,
    }
)
