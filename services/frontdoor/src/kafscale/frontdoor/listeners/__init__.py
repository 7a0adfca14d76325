"""What is between a socket and a client's connection: listeners, TLS, proxies, and the bounds of connections."""
