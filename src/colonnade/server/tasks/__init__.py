"""Tasks of a server: tools that go on after the response to their call. Loaded on first use."""
