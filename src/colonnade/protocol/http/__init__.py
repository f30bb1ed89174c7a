"""What MCP says about HTTP, without I/O: headers, status codes, Origin and Host, event streams."""
