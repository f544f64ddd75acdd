"""What the tests put around the gateway: an upstream that fails in every way, a client that sees it all."""
