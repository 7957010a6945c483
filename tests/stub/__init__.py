"""Black-box tests: the real daemon process with a scripted claude."""
