"""Environments by name, one file each; `worker.rollout.env=NAME:ARGUMENT` chooses one."""
