"""The configuration: its schema, its reading, its cross checks and how it is shown."""
