"""Reward models: what their folder says, what they read, and how their scores are computed."""
