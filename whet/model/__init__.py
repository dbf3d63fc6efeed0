"""The transformers model that learner and sampler share: loading, and the one attention hook both go through."""
