"""Parents with the plugin: how they are woken, and when not."""
