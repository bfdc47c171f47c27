"""Runs handlers: a Plan decides without I/O, one asyncio runtime carries out its decisions."""
