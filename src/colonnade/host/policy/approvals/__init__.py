"""Approvals: a person decides about one request, in an inbox."""
