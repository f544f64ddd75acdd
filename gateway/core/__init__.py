"""gateway/core"""
