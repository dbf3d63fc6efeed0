"""The reference engine: `generate` of transformers."""
