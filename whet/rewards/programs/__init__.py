"""Model-written programs: find them in a response, read the tests of a row, and score what the sandbox reports."""
