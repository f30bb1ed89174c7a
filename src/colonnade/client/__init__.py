"""The MCP client: `connect`, `Client`, its transports and callbacks."""
