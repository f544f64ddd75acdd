"""gateway/wire/openai"""
