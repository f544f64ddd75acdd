"""Files and batches: work that can wait, run line by line through the ordinary pipeline.

A batch belongs to a key. Its input is divided into tasks of some lines each, which any gateway process claims.
Each process appends the results of its lines to a log of its own (`results.py`); in the end one of them
sorts all logs into the output and the error file. A process that dies loses only the lines under way.
"""
