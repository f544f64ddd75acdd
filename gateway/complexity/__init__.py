"""How hard a prompt is: features, a linear model, and the choice between a cheap and a strong candidate."""
