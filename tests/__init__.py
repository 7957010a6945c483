"""The tests, in tiers: unit, stub (a scripted claude), claude (the real one, offline), benchmarks."""
