"""Servers over the queue: other protocols as doors to the same rows."""
