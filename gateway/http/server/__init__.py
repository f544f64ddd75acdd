"""gateway/http/server"""
