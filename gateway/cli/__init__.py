"""gateway/cli"""
