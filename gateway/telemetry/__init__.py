"""gateway/telemetry"""
