"""The command `colonnade`: what a person types, and nothing that a program would."""
