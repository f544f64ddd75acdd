"""gateway/redis"""
