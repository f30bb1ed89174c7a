"""Child processes as servers: start, pipes, output, shutdown."""
