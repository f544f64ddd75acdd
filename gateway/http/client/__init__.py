"""gateway/http/client"""
