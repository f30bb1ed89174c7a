"""What the Model Context Protocol says, as plain code.

Rules: no I/O, no clock, no task; the standard library, msgspec and the schema validator only.
"""
