"""Numbers that verl, EasyR1, VPPO-RL and Skywork-OR1 gave, recomputed: `python tools/parity.py FILE.json`."""
