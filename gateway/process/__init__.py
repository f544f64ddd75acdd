"""Gateway processes: one worker, or a supervisor with several workers on one port."""
