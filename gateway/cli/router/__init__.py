"""`train-router`, `calibrate` and `explain`: the router's training; needs the extra `train`."""
