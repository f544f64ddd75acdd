"""gateway/reporting"""
