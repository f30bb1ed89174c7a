"""State that outlives a request, behind one port: `memory` for one process, `sqlite` for one
machine, `redis` for many. `tests/store/test_contract.py` is the contract of all.
"""
