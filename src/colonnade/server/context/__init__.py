"""What a handler can do while it runs: progress, logs, elicitation, sampling, handles."""
