"""gateway/assembly"""
