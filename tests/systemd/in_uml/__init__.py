"""Tests that need the memory controller: each runs inside a guest of User Mode Linux of its own."""
