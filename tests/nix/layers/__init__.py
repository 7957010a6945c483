"""What needs nixpkgs' library: the option layers, the flake, the option reference."""
