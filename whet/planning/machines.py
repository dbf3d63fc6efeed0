"""Devices that runs are planned for: memory, speed, and the costs that no data sheet has.

Speeds are the data sheets' (dense bf16 products, memory, links). How much of them whet reaches was fitted on one H200
(`measured.py`); for other GPUs the same shares of their own data sheets are assumed, which has not been measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.config.problems import hint
from whet.config.texts import printable
from whet.errors import UserError

GIB = 2**30
CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Fit:
    """Shares of a machine's speeds that whet's passes reach, and times of its host; fitted to measurements."""

    products: float = 0.76  # of the data sheet's products, in micro-batches without end
    saturation: int = 300  # tokens of a micro-batch at which products reach half of that
    attention: float = 0.30  # of the products, in attention of training
    sweeps: float = 17.0  # times that the activations of a token are read or written in forward and backward passes
    gradient_bytes: float = 8.0  # moved for each trained parameter and micro-batch: its fp32 gradient, read and written
    decode_products: float = 0.70  # of the products, in decoding
    weights_read: float = 0.80  # of the memory's speed, reading weights in decoding
    cache_read: float = 0.85  # of the memory's speed, reading keys and values
    decode_layer_s: float = 42e-6  # of one layer in a captured decode step, besides reading
    modules_layer_s: float = 110e-6  # the same by the model's own modules
    eager_layer_s: float = (
        0.65e-3  # the same where nothing is captured: a sharded policy that is gathered for a rollout
    )
    host_link: float = 25e9  # bytes a second between a device and host memory
    layer_host_s: float = 2.8e-3  # that the host needs to launch forward and backward of one layer
    sampled_host_s: float = 0.5e-3  # that the host spends on a sample while the device waits: its request and result,
    packed_host_s: float = 0.3e-3  # its packing,
    scored_host_s: float = 0.27e-3  # its reward, metrics and log
    shared_prompt: float = 0.4  # of a prompt's keys and values, what each of its samples reads for itself
    modules_host: float = 1.9  # of a model's own modules, relative to the fused kernels
    context_bytes: int = round(0.6 * GIB)  # CUDA's own memory and captured graphs


@dataclass(frozen=True, slots=True)
class Machine:
    """One device, and how devices are linked."""

    name: str
    memory: int  # bytes that the device reports in all
    flops: float  # of dense products, a second
    bandwidth: float  # bytes a second of its memory
    link: float = 0.0  # bytes a second and direction between devices of a machine
    network: float = 50e9  # bytes a second and device between machines
    measured: bool = False  # predictions were compared with runs on it
    fit: Fit = Fit()

    @property
    def is_cpu(self) -> bool:
        """True for the processor of this machine."""
        return self.name == CPU


def _gpu(name: str, gib: float, tera: float, terabytes: float, link: float, measured: bool = False) -> Machine:
    return Machine(name, round(gib * GIB), tera * 1e12, terabytes * 1e12, link * 1e9, measured=measured)


# Memory as the driver reports it, dense bf16 TFLOP/s, TB/s of memory, GB/s of links in one direction.
GPUS = {
    machine.name: machine
    for machine in (
        _gpu("H200-141G", 139.8, 989, 4.8, 450, measured=True),
        _gpu("H100-80G", 79.1, 989, 3.35, 450),
        _gpu("H100-PCIe-80G", 79.1, 756, 2.0, 64),
        _gpu("H100-NVL-94G", 93.1, 835, 3.9, 300),
        _gpu("H800-80G", 79.1, 989, 3.35, 200),
        _gpu("H20-96G", 95.1, 148, 4.0, 450),
        _gpu("GH200-96G", 94.5, 989, 4.0, 450),
        _gpu("B200-180G", 178.3, 2250, 7.7, 900),
        _gpu("A100-80G", 79.1, 312, 2.04, 300),
        _gpu("A100-40G", 39.4, 312, 1.555, 300),
        _gpu("A800-80G", 79.1, 312, 2.04, 200),
        _gpu("L40S-48G", 44.4, 362, 0.864, 32),
        _gpu("A6000-48G", 47.5, 155, 0.768, 32),
        _gpu("L4-24G", 22.0, 121, 0.3, 32),
        _gpu("A10-24G", 22.0, 125, 0.6, 32),
        _gpu("RTX5090-32G", 31.3, 210, 1.79, 64),
        _gpu("RTX4090-24G", 23.5, 165, 1.008, 32),
        _gpu("RTX3090-24G", 23.5, 71, 0.936, 32),
    )
}
DEFAULT = "H100-80G"


def find_machine(name: str) -> Machine:
    """Return the device of a name; its memory may be left out where only one has the rest of the name."""
    if name.lower() == CPU:
        from whet.planning.probe import this_cpu

        return this_cpu()
    known = {each.lower(): each for each in GPUS}
    wanted = name.lower().removeprefix("nvidia-").removesuffix("b").replace("gb", "g")
    matching = [full for low, full in known.items() if low == wanted or low.rpartition("-")[0] == wanted]
    if len(matching) == 1:
        return GPUS[matching[0]]
    if matching:
        raise UserError(f"--gpu {printable(name)}: there are several of this name: {', '.join(matching)}; name one")
    raise UserError(
        f"--gpu {printable(name)}: no such GPU is known{hint(name, GPUS)}; choose {CPU} or {', '.join(GPUS)}"
    )
