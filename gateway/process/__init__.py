"""gateway/process"""
