"""gateway/limits"""
