"""The upstream side: transports, connection pools, stream relay, health checks and probes."""
