"""`sluice import-litellm`: LiteLLM's config becomes one of this gateway, and what cannot is told."""
