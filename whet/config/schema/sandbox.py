"""`sandbox.*`: how programs that the model wrote are confined, and their limits."""

from __future__ import annotations

from dataclasses import dataclass

from whet.config.keys import key


@dataclass(frozen=True)
class SandboxConfig:
    """Layers, limits and the number of programs at once."""

    timeout: float = key(10.0, "seconds a program may run", least=0.05, most=86_400)
    memory_mb: int = key(512, "MB of memory a program may use, in all its processes", least=32, most=1_048_576)
    processes: int = key(32, "processes and threads a program may have at once", least=1, most=4096)
    output_bytes: int = key(
        1_048_576, "bytes of stdout, and as many of stderr, before a program is ended", least=1, most=1_073_741_824
    )
    disk_mb: int = key(64, "MB of files a program may write", least=1, most=65_536)
    workers: int = key(2, "programs that run at once", least=1, most=256)
    layers: str = key(
        "auto",
        "confinement: namespaces, landlock (with seccomp), or auto = the first of them that this machine allows",
        choices=("auto", "namespaces", "landlock"),
    )
    url: str | None = key(
        None, "address of a server with Sandbox Fusion's API that runs the programs instead; $WHET_SANDBOX_TOKEN"
    )
