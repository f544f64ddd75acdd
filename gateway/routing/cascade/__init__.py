"""The cascade: checks a cheap answer, escalates a doubtful one, and samples both tiers for calibration."""
