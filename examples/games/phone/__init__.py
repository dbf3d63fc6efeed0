"""Phones for agents: a device over ADB, a simulated one, actions that a model writes, and replays."""
