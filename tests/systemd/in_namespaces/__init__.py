"""Tests that run inside one machine made of namespaces, all in one boot."""
