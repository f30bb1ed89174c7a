"""Sessions of the Streamable HTTP transport (`Mcp-Session-Id`): of one process, or shared."""
