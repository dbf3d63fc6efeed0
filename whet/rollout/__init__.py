"""From prompts to samples: the engines that write responses."""
