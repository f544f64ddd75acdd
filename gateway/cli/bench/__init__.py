"""`sluice bench URL`: puts a small load on an endpoint and measures it, or compares two endpoints."""
