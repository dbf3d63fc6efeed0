"""Chats as models write them: messages, calls of tools, and turns that are never encoded twice."""
