"""gateway/context_window"""
