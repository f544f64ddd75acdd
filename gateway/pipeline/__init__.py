"""The pipeline: the gates and layers of a request, and how they compose."""
