"""Protocol types to JSON and back: decode, encode, and downgrade to older revisions."""
