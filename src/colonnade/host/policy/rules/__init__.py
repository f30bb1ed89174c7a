"""Rules: what is allowed, denied or asked about."""
