"""OAuth for clients: login, tokens, storage."""
