"""An authorization server of our own in front of an identity provider: clients register with us."""
