"""Installs, prepares and runs a real engine (vLLM on a CPU or a GPU) for `sluice up`.

Nothing here imports the gateway: `up` starts it as a separate process.
"""
