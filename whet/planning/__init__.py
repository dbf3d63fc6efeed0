"""Plans of runs: memory per device, time per step and cost, from a model's config alone.

`shapes.py` counts weights, `machines.py` describes devices, `workload.py` reads a run's config, `memory.py` and
`times.py` predict, `advice.py` says what to change, `report.py` prints; `simulate.py` plays sampling and learning as
events.
"""
