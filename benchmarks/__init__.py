"""Sluice and other proxies, measured on the same upstream under the same load in one run (docs/benchmarks.md)."""
