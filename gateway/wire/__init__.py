"""Codecs without I/O: HTTP headers, JSON bytes, and OpenAI's requests, answers and streams."""
