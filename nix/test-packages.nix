# What the tests need beside the daemon's own dependencies: those of the extra `dev` in pyproject.toml that are
# libraries. Given a Python package set.
python: [
  python.cryptography
  python.hatchling
  python.hypothesis
  python.pytest
  python.pytest-subprocess
  python.pytest-timeout
  python.pytest-xdist
]
