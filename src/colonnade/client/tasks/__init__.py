"""Tasks of a server, as the client sees them."""
