"""SQS as a destination, and SQS clients whose delays have no limit: ``Waiter``, ``AsyncWaiter``."""

from fairturn.relay.sqs.waiter import Waiter
from fairturn.relay.sqs.waiter_async import AsyncWaiter
from fairturn.relay.sqs.waiter_orders import HandingOver, Waiting

__all__ = ["AsyncWaiter", "HandingOver", "Waiter", "Waiting"]
