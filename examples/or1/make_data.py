"""Write the quickstart's problems as Skywork-OR1's files hold theirs: pickles of rows with a chat and a list of truths.

python examples/or1/make_data.py or1_data
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from whet.assets import resolve_data
from whet.data.files import read_rows


def main(folder: Path) -> None:
    """Write train.pkl and test.pkl."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        rows = [
            {
                "data_source": f"{split}-digits",
                "prompt": [{"role": "user", "content": row["problem"]}],
                "ability": "math",
                "reward_model": {"ground_truth": [row["answer"]], "style": "rule"},
                "extra_info": {"index": index, "split": split},
            }
            for index, row in enumerate(read_rows(resolve_data(f"whet/quickstart@{split}", lambda _: None)))
        ]
        (folder / f"{split}.pkl").write_bytes(pickle.dumps(rows))
        print(f"{folder / split}.pkl: {len(rows)} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "or1_data"))
