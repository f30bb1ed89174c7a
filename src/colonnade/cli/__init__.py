"""The command line: `colonnade`. No other package imports it."""
