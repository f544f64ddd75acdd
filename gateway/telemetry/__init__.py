"""Observability: metrics, logs, the access log and traces."""
