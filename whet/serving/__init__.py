"""`whet serve`: a model behind OpenAI's API, on whet's engines."""
