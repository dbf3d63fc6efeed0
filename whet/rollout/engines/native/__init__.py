"""The native engine: continuous batching over a key-value cache, on the learner's own weights.

One noun per file: `sequence` (a response being written), `scheduler` (which sequence is in which slot), `runner` (the
model's forward passes), `sampler` (logits to tokens), `stop` (when a response ends), `loop` (the steps), `engine` (the
Engine protocol), `spec` (how configs name it). On a CPU `cache` holds keys and values; on a GPU `storage` does, whose
`pages` the `allocator` hands out to sequences as they grow, `paged` decodes over them, and `graph` replays that.
"""
