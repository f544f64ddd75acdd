"""Routing: candidate eligibility, strategies, prefix affinity, spill-over, complexity, cascade."""
