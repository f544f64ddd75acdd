"""The answer cache: keys, stores, single flight, and replaying a cached answer as a stream."""
