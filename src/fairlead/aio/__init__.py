"""The async doors: the same names as fairlead.sync, awaited. A test compares the two."""
