"""The sync doors: ``connect``, ``Database``, ``Queue`` and what they give."""
