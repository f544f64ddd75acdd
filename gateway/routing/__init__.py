"""gateway/routing"""
