"""Prompts over the context window: recognise, reroute or trim them; output caps; truncated answers."""
