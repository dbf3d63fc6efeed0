"""SGLang's server as an engine: weights reach it as files."""
