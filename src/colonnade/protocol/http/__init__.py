"""The HTTP transport without I/O: header rules, security checks, parameter headers, SSE."""
