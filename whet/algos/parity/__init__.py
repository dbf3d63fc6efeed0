"""Numbers that verl, EasyR1, VPPO-RL and Skywork-OR1 gave, recomputed: `python -m whet.algos.parity FILE.json`."""
