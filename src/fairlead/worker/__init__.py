"""Runs handlers: a pure Plan that decides, and one asyncio runtime that does as it says."""
