"""Code that runs beside vLLM, possibly under another interpreter: these files import nothing of whet.

The folder itself is on that interpreter's path, so the modules have names that nobody else's have.
"""
