"""MCP servers: registration, dispatch and handlers."""
