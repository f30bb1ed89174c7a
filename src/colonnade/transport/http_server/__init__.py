"""The HTTP server: connections, requests, sessions, event streams."""
