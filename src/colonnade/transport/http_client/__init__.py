"""The HTTP client: connections, requests, event streams and their resumption."""
