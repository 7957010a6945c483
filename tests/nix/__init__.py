"""Tests of the Nix files: evaluated for real, and what they render run on a real systemd."""
