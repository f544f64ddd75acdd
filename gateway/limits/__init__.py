"""The limits of keys, in memory or shared through Redis, and the memory budget for request bodies."""
