"""Training of the built-in models: how the weights that come with the package are made. No run imports it."""
