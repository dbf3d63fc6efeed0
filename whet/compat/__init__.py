"""Run commands of verl, EasyR1, VPPO-RL and Skywork-OR1: their syntax, their keys, their defaults."""
