"""OpenAI's wire format: requests, answers, streams, usage, and merging requests into batches."""
