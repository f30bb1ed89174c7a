"""The entry point of the command line: `colonnade`, or `python -m colonnade`.

Rules: old versions of Python must be able to compile this file, so that it can report that they
are too old; nothing of the package is imported before that check.
"""

import sys

OLDEST = (3, 11)


def too_old(version: "tuple[int, ...]") -> str:
    """The error message for a Python that is too old; empty for others."""
    if version[:2] >= OLDEST:
        return ""
    mine, needed = ".".join(map(str, version[:2])), ".".join(map(str, OLDEST))
    return f"colonnade: this is Python {mine}, and {needed} or newer is required\n"


def main() -> int:
    """Run the command; return its exit code."""
    message = too_old(tuple(sys.version_info[:3]))
    if message:
        sys.stderr.write(message)
        return 2
    import gc

    # A command spends an eighth of its time on collections that find nothing: what is loaded here
    # stays until the process ends. No object of an application exists yet.
    gc.disable()
    from colonnade.cli.app import start

    gc.freeze()
    gc.enable()
    return start(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
