"""Shared and lasting state behind small interfaces. asyncio, never aiohttp."""
