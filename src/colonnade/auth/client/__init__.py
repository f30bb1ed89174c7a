"""OAuth for clients: discovery, registration, grants, credentials, token storage."""
