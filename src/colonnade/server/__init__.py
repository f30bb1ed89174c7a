"""A server: what it offers, and how a request finds its way to a function."""
