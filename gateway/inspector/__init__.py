"""The call inspector: what the gateway decided for each of the last calls, in memory only."""
