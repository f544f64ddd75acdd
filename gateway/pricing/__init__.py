"""gateway/pricing"""
