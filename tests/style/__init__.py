"""The style budget of this repository, and the checks that measure it."""
