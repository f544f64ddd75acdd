"""`sluice top`: a live view of a running gateway, from its admin port alone."""
