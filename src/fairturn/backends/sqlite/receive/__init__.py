"""Receive on SQLite."""
