"""The real claude against the offline model."""
