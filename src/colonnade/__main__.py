"""`python -m colonnade` is the command `colonnade`. Rules: nothing else is here."""

from colonnade.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
