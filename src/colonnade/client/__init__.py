"""A client: what a program asks of a server, and what it answers when it is asked."""
