"""Arguments of the other systems' model mergers, as `whet merge` takes them."""

from __future__ import annotations

from whet.errors import UserError

_TAKEN = ("--local_dir", "--target_dir", "--hf_model_path", "--hf_upload_path")
_FLAGS = {"--private": "--private", "--trust-remote-code": "--trust-remote-code"}
_IDLE = ("--use_cpu_initialization", "--tie-word-embedding", "--is-value-model")


def merge_arguments(arguments: list[str]) -> list[str]:
    """Return the arguments of `whet merge`; a backend other than FSDP is refused."""
    made: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if name in ("merge",):
            continue
        if name == "--backend":
            backend = value if equals else next(waiting, "")
            if backend != "fsdp":
                raise UserError(f"--backend {backend}: whet merges checkpoints of FSDP; convert it with verl's merger")
        elif name in _TAKEN:
            made += [name, value if equals else next(waiting, "")]
        elif name in _FLAGS:
            made.append(_FLAGS[name])
        elif name not in _IDLE:
            raise UserError(f"{argument}: no option of a model merger that whet takes (whet merge --help)")
    return made
