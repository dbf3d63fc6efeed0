"""Notice what is wrong with a run: rules from metrics to findings, while it trains (`Doctor`) and afterwards."""
