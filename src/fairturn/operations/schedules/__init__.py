"""Schedules (semantics §18): how one is defined, its calls, and running those that are due."""
