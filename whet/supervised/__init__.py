"""`whet sft`: supervised learning from demonstrations, with the learner and the run folder of `whet train`."""
