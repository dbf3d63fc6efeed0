"""The native engine: continuous batching over a key-value cache, on the learner's own weights.

One noun per file: `sequence` (a response being written), `scheduler` (who is in which slot), `cache` (keys and values),
`runner` (the model's forward passes), `sampler` (logits to tokens), `stop` (when a response ends), `loop` (the steps),
`engine` (the Engine protocol), `spec` (how configs name it).
"""
