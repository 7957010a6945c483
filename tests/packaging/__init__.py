"""What is built and installed: one wheel and one sdist, made of a copy of this repository."""
