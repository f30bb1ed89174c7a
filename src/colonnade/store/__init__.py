"""State that outlives a request, behind one port: `memory` for one process, `sqlite` for one
machine. `tests/store/test_store.py` is the contract of both.
"""
