"""The queue in front of each upstream: concurrency slots, fair order, pacing and spill-over."""
