"""Coalesced sends, receives and deletes, long polls, the in-flight limit."""
