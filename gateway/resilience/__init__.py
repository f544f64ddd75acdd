"""gateway/resilience"""
