"""Too little memory: an error before the libraries are loaded, and a one-line message if it runs out later."""

from __future__ import annotations

from dsal.errors import MemoryNeededError

LIBRARIES = 2 * 10**9  # bytes of address space that PyTorch, SciPy and scikit-learn need, with some work
_LIGHT = ("info", "predict")  # commands that load less
_SIGNS = (  # out-of-memory errors of loaders, torch, ONNX Runtime and threads
    "failed to map segment",
    "can't allocate memory",
    "cannot allocate memory",
    "can't start new thread",
    "bad_alloc",
    "not enough memory",
)


def check_address_space(command: str) -> None:
    """Raise :class:`MemoryNeededError` if a limit on addresses (``ulimit -v``) leaves no room for the libraries."""
    try:
        import resource
    except ImportError:  # not Unix
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LIBRARIES and command not in _LIGHT:
        raise MemoryNeededError(
            f"dsal {command} needs {LIBRARIES / 1e9:.1f} GB of address space for its libraries alone; "
            f"this process may use {limit / 1e9:.2f} GB. Raise the limit: ulimit -v {LIBRARIES // 1000} or more"
        )


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, whichever library raised it."""
    if isinstance(error, MemoryError):
        return True
    possible = isinstance(error, (ImportError, RuntimeError, OSError, SystemError))
    return possible and any(sign in str(error).lower() for sign in _SIGNS)
