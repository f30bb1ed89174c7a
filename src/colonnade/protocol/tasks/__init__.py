"""Tasks without I/O: the record of a task, its life cycle, and how both generations see it."""
