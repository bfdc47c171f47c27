"""Values, settings, limits and errors: no I/O, no backend, no clock."""
