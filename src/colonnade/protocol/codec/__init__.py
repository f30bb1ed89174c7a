"""Decode messages into types, encode results, and downgrade both to older revisions."""
