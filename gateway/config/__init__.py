"""The configuration: its schema, reading, cross-checks and presentation."""
