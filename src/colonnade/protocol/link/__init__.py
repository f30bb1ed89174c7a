"""One duplex JSON-RPC connection without I/O: the handshake and the requests in flight."""
