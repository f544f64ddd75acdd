"""The client side: connections, endpoints, request bodies, responses, streams and the admin port."""
