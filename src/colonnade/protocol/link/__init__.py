"""One duplex JSON-RPC connection without I/O: the handshake and what is in flight."""
