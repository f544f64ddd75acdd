"""The complexity router: scores a prompt, and chooses between a cheap and a strong candidate."""
