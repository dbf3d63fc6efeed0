"""From files and hub datasets to prompts, in an order that can be taken up again."""
