"""gateway/http"""
