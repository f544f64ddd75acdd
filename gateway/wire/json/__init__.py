"""gateway/wire/json"""
