"""Decisions. Nothing here does I/O, reads a clock or awaits."""
