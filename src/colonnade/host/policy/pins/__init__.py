"""Pins: the definitions that a person has accepted."""
