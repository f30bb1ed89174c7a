"""Formats of model providers: tool definitions, tool calls and tool results.

`openai` and `anthropic` are the two formats, `schemas` converts input schemas, `tool_calls` has
what both share: tool calls, content parts, and names that providers accept.
"""
