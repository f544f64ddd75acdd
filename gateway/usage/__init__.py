"""gateway/usage"""
