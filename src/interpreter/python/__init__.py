"""The runner: executes cells inside a session. See `runner.py`."""
