"""The servers of a host: start, restart, sessions, listings."""
