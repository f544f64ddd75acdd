"""gateway/wire/http"""
