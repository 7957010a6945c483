"""A daemon that hands bounded work to headless claude processes and always tells how each ended."""

__version__ = "0.1.0"
