"""Clients as they come from their registries, against ``fairlead serve`` as a process."""
