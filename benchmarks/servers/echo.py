"""The least that can answer: fixed bytes around the id of the request. It shows what the load can do.

    python echo.py http | stdio

Rules: reads nothing but the id, so its answers are right for one request alone; imports nothing of
ours.
"""

import os
import select
import socket
import sys

BEFORE = b'{"jsonrpc":"2.0","id":'
AFTER = b',"result":{"content":[{"type":"text","text":"7"}]}}'
DIGITS = 8
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (
    len(BEFORE) + DIGITS + len(AFTER)
)


def http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        epoll = select.epoll()
        epoll.register(listener, select.EPOLLIN)
        waiting, table = listener.fileno(), dict[int, socket.socket]()
        while True:
            for fd, _ in epoll.poll():
                if fd == waiting:
                    sock, _ = listener.accept()
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    table[sock.fileno()] = sock
                    epoll.register(sock, select.EPOLLIN)
                elif data := table[fd].recv(65536):
                    at = data.index(b'"id":') + 5
                    table[fd].send(HEAD + BEFORE + data[at : at + DIGITS] + AFTER)
                else:
                    table.pop(fd).close()


def stdio() -> None:
    rest = b""
    while piece := os.read(0, 1 << 16):
        *lines, rest = (rest + piece).split(b"\n")
        answers: list[bytes] = []
        for line in lines:
            at = line.index(b'"id":') + 5
            answers.append(BEFORE + line[at : at + DIGITS] + AFTER + b"\n")
        os.write(1, b"".join(answers))


if __name__ == "__main__":
    http() if sys.argv[1] == "http" else stdio()
