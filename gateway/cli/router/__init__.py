"""Training and measuring the router. Needs numpy (the extra `train`); nothing here serves a call."""
