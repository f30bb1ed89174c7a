"""Thin shells that move bytes. They know no method names."""
