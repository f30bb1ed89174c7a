"""Configuration files: find, read, merge, edit, trust."""
