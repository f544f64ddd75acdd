"""HTTP on both sides: the server for clients, the client for upstreams, and the ticker both use."""
