"""Sockets. The only place that knows aiohttp."""
