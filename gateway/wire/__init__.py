"""Codecs from bytes to facts and back. Pure: no clock, no socket, no await."""
