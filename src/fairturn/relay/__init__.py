"""The relay: messages wait here until they are due, and are then handed over to another broker.

``Relay`` hands them over. Its destinations are in ``fairturn.relay.sqs``, ``.amqp`` and
``.fairturn_destination``; ``.dynamodb`` is for users without a SQL database.
"""

from fairturn.relay.destination import Destination, DestinationError, Later, Never, Outcome, Parcel
from fairturn.relay.runner import Relay

__all__ = ["Destination", "DestinationError", "Later", "Never", "Outcome", "Parcel", "Relay"]
