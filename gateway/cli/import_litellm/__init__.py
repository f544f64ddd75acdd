"""`sluice import-litellm`: converts a LiteLLM config and reports what has no counterpart."""
