"""Types shared by every package: calls, callers, errors, tokens, traces, units and the clock."""
