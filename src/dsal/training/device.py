"""Choice of the device and the number format of base training."""

from __future__ import annotations

import torch

from dsal.errors import InputError, UnknownNameError

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str = "auto") -> torch.device:
    """Return the device of that name; ``auto`` prefers CUDA, then Apple's MPS, then the CPU.

    Raises:
        InputError: this machine has no such device.
    """
    if name != "auto":
        try:
            return torch.empty(0, device=name).device
        except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch's three ways to say so
            reason = str(error).splitlines()[0]
            if reason.startswith("Expected one of"):  # followed by all of torch's device types
                reason = "unknown type of device"
            raise InputError(f"cannot compute on the device {name!r}: {reason}. Use auto or cpu") from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the type in which convolutions run.

    ``auto`` takes bfloat16 where the hardware multiplies it, else float16 on CUDA and float32 on CPUs: such a CPU
    emulates bfloat16, which was measured to be fifteen times slower than float32.
    """
    if name != "auto":
        if name not in PRECISIONS:
            raise UnknownNameError("precision", name, [*PRECISIONS, "auto"])
        return PRECISIONS[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return torch.bfloat16 if device.type == "cpu" and _cpu_multiplies_bfloat16() else torch.float32


def _cpu_multiplies_bfloat16() -> bool:
    # torch has no public query for this; if its private ones are gone, float32 is the safe choice.
    queries = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, query, lambda: False)() for query in queries)
