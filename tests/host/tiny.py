"""A server with one tool, to be started as a process."""

from portico import Server

server = Server("tiny")


@server.tool
def tiny() -> str:
    return "tiny"
