"""Starts and watches the real engine (vLLM on a CPU or a GPU) and prepares its models.

Nothing here imports the gateway: `up` starts it as a process, as anyone would.
"""
