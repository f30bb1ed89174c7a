"""OAuth proxy: a server's own authorization server in front of a provider with one fixed client."""
