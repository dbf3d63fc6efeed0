"""Programs that call the policy over HTTP: the endpoint that answers them, and how they are started and ended."""
