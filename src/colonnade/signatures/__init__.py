"""A Python function as a JSON Schema, and its arguments from JSON."""
