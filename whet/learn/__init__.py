"""The model being trained: packing, log-probs, the update, the optimizer."""
