"""Final answers: find them in a response, and decide whether two of them mean the same."""
