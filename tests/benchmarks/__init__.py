"""Benchmarks: each number that is promised, measured against something else in the same run."""
