"""A server with one tool, to be started as a process."""

from colonnade import Server

server = Server("tiny")


@server.tool
def tiny() -> str:
    return "tiny"
