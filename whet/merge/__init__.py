"""`whet merge`: checkpoints of whet, verl, EasyR1 and Skywork-OR1 as ordinary Hugging Face folders."""
