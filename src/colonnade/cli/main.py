"""Where the command begins: `colonnade VERB TARGET`, or `python -m colonnade.cli.main`.

Rules: old Pythons must be able to read this file, to be told that they are too old; so nothing
is imported here before that was asked.
"""

import sys

OLDEST = (3, 11)


def too_old(version: "tuple[int, ...]") -> str:
    """What to say to a Python that cannot run this; nothing to one that can."""
    if version[:2] >= OLDEST:
        return ""
    mine, needed = ".".join(map(str, version[:2])), ".".join(map(str, OLDEST))
    return f"colonnade: this is Python {mine}, and {needed} is needed; start it with a newer one\n"


def main() -> int:
    """Do what the command line says; the exit code."""
    words = too_old(tuple(sys.version_info[:3]))
    if words:
        sys.stderr.write(words)
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
