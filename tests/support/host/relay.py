"""Stands between a client and a server on a pipe, and writes down all that the server sees.

python relay.py RECORD PROGRAM ...
"""

import os
import subprocess
import sys


def main() -> None:
    record, *command = sys.argv[1:]
    with open(record, "ab", buffering=0) as seen:
        seen.write(repr(sys.argv).encode() + b"\n" + repr(dict(os.environ)).encode() + b"\n")
        child = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert child.stdin is not None
        for line in sys.stdin.buffer:
            seen.write(line)
            child.stdin.write(line)
            child.stdin.flush()
        child.stdin.close()
        sys.exit(child.wait())


main()
