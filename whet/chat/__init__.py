"""Chat messages, formats of tool calls, and turns as token ids."""
