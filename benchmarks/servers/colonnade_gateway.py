"""The gateway under test, as a user writes it: public names, defaults, every check on.

    python colonnade_gateway.py URL

Rules: imports nothing private.
"""

import sys

from colonnade import Gateway, Host

if __name__ == "__main__":
    Gateway(Host({"bench": {"url": sys.argv[1]}})).run("http", port=0)
