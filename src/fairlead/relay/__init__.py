"""The relay: messages wait here until they are due, and are handed over to another broker."""
