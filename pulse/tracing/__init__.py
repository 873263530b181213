"""Traces of what the engine does: spans, recorded by OpenTelemetry's SDK or without it, sent to OTLP and to a table."""
