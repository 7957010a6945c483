"""What the builtins of Nix are enough for: the core, the package, the form of the files."""
