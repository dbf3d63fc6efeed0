"""The public Python API: jobs as functions, runs as objects. `import whet` resolves its names from here."""
