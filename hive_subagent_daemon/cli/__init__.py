"""The command `hive-subagent`. Nothing of it is imported by the daemon."""
