"""The gateway: a server in front of the servers of a host."""
