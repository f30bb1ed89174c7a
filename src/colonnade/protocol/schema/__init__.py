"""JSON Schema: validation, bounds, and messages for what is wrong."""
