"""gateway/pipeline"""
