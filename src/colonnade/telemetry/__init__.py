"""Spans and metrics by OpenTelemetry's conventions for MCP, and metrics for Prometheus."""
