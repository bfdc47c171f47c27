"""Execution in an event loop: the pool, the runner, the waker, the hub of all waits."""
