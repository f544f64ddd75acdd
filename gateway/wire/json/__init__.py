"""JSON at the byte level: find, edit and bound a text without decoding and re-encoding it."""
