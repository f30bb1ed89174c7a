"""OAuth for servers: verification of tokens."""
