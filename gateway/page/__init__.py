"""The admin port as a web page: texts, templates and figures, all pure. `gateway/http/server/page.py` serves it."""
