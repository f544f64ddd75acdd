"""gateway/queueing"""
