"""Replicas of the engine on devices of their own, each of which may die without ending the run.

`worker.py` is the process of one, `replica.py` the trainer's side of it, `weights.py` the way of weights to all of
them, and `engine.py` the `Engine` that hands each request to one of them.
"""
