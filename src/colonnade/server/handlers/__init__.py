"""Registered functions as handlers of requests."""
