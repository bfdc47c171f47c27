"""Servers: other protocols for the same queues."""
