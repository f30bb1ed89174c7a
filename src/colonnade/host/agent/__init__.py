"""A model that calls tools: the loop, tool search, the model endpoint."""
