"""The agent loop: a model that calls tools, tool search, the model endpoint."""
