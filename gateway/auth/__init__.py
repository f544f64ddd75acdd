"""gateway/auth"""
