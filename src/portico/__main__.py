"""`python -m portico` is the command `portico`. Rules: nothing else is here."""

from portico.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
