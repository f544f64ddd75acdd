"""gateway/cache"""
