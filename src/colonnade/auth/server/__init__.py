"""OAuth for servers: protected resource, verification of access tokens, DPoP."""
