"""One replica of a gateway: `colonnade gateway FILE --port PORT`, as a program.

python gateway_process.py FILE PORT
"""

import os
import sys

if __name__ == "__main__":
    file, port = sys.argv[1:]
    command = ["gateway", file, "--port", port, "--log-level", "info"]
    os.execv(sys.executable, [sys.executable, "-m", "colonnade", *command])
