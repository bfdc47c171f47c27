"""The public calls, for sync and async, and for every backend.

A function here checks and encodes the user's arguments *before* a connection is taken. It returns a
``Call``, which can start the backend's operation as often as retries need.
"""
