"""The command `portico`: what a person types, and nothing that a program would."""
