"""The calls of the public contract, once for sync and async, for every backend.

A function here checks and encodes the user's arguments *before* any connection is taken, and
returns a ``Call``: an operation that can be started as often as a retry needs it.
"""
