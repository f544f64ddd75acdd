"""API keys: authentication, throttling of failed attempts, and which models and fields a key may use."""
