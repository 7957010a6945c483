"""What several tiers of tests share."""
