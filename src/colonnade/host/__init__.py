"""Hosts: many servers behind one set of tools, prompts and resources."""
