"""Units: one part at a time, in memory or on a temporary folder."""
