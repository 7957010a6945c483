"""Tests that need a systemd of their own: they run inside machines that are booted for them."""
