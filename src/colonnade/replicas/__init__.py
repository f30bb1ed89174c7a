"""Several processes of one server that share a store: messages, leases, requests between them."""
