"""The DynamoDB tables of shoryuken-waiter: a store and its drain, without a SQL database."""

from fairturn.relay.dynamodb.drain import Drained
from fairturn.relay.dynamodb.items import Waiting
from fairturn.relay.dynamodb.store import DynamoStore, Summary

__all__ = ["Drained", "DynamoStore", "Summary", "Waiting"]
