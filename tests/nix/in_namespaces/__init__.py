"""What the Nix core renders, run by a real systemd inside a machine made of namespaces."""
