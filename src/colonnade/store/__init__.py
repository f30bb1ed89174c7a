"""Stores for state that outlives a request: `memory` for one process, `sqlite` for the processes
of one machine. Both pass `tests/store/test_store.py`, the contract of `ports.Store`.
"""
