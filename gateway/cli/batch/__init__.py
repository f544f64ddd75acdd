"""`sluice batch`: files of requests that can wait, from a terminal."""
