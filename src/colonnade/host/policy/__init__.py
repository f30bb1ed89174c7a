"""What a host lets its callers and its servers do: rules, approvals, pins, containment, audit."""
