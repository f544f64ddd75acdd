"""`sluice top`: a live view of a running gateway, over its admin port."""
