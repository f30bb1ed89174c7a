"""The audit log of a host: lines of JSON, and whether they are all there."""
