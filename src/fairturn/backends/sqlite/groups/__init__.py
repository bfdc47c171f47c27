"""Groups on SQLite."""
