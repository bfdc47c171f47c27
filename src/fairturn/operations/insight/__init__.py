"""Calls that read and change nothing: messages, counts, failures, events, waiting."""
