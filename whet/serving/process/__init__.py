"""The engine of `whet serve` in a process of its own.

Python runs one thread of a process at a time. An engine on a GPU has to launch the next tokens while the last ones are
computed; where HTTP, validation and spelling share its process, it waits for them, and the GPU for it.
"""
