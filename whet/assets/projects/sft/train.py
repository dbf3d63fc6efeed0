"""The project from Python: `python train.py`."""

import whet

run = whet.sft(config="config.yaml", output="run-python")
print(run.metrics["val/loss"])
print(run.plot().save("curves.svg"))
