"""gateway/routing/complexity"""
