"""`sluice report`: the savings against each baseline, their causes, and what is excluded."""
