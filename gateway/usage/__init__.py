"""Token estimates, usage and cost of calls, the usage ledger with its stores, and savings."""
