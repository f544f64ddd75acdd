"""gateway/routing/cascade"""
