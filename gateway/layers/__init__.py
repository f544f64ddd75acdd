"""Layers own the awaiting for one policy each. Never aiohttp."""
