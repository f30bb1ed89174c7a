"""Conversion of tools, tool calls and results for model providers.

`tool_calls` has names and content that providers accept, `schemas` converts JSON Schemas; `openai`
and `anthropic` are the two wire formats.
"""
