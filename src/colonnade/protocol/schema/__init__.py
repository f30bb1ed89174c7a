"""JSON Schema: limits of a document, validation of values, and error messages."""
