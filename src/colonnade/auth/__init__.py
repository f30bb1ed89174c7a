"""Authentication and authorization (OAuth), SSRF protection, encryption of request state."""
