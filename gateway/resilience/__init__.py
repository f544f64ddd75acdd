"""Retries, circuit breakers and what an upstream's failure means."""
