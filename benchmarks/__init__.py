"""Sluice measured against other forwarders: same upstream, same load, one run (docs/benchmarks.md)."""
