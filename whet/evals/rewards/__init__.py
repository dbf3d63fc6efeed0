"""`whet reward bench`: speed of a reward, its agreement with labels and other rewards, and hacks that it pays."""
