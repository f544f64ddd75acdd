"""gateway/batching"""
