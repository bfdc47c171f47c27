"""Execution with threads: the pool, the runner, the waker, the hub of all waits."""
