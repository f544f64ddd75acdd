"""`sluice report`: what was saved, against what, by what, and what of it is not known."""
