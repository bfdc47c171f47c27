"""The relay: messages wait here until they are due, and are handed over to another broker.

``Relay`` does it. ``fairlead.relay.sqs``, ``.amqp`` and ``.other`` are where to; ``.dynamodb`` is
for those who have no SQL database.
"""

from fairlead.relay.destination import Destination, DestinationError, Later, Never, Outcome, Parcel
from fairlead.relay.running import Relay

__all__ = ["Destination", "DestinationError", "Later", "Never", "Outcome", "Parcel", "Relay"]
