"""The checks of `colonnade doctor`."""
