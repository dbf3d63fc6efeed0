"""Environments that answer a policy over several turns."""
