"""A Python function as a JSON Schema and back: the arguments of a call become its parameters."""
