"""Clients as they come from their registries, against ``fairturn serve`` as a process."""
