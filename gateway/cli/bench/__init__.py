"""`sluice bench URL`: a small load on one's own endpoint, measured; two endpoints are compared."""
