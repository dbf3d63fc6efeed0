"""Facts about this machine that other parts rely on for safety: process groups, private folders, listeners.

Imports nothing of whet but its errors. Linux's /proc is used where it exists.
"""
