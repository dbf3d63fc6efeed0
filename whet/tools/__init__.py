"""Tools that a policy calls: functions, classes, MCP servers and built-in ones, and the environment that runs them."""
