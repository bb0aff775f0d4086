"""Secure aggregation: numbers of many clients of which a server learns the sum alone.

Each client rounds its numbers to multiples of 2^-bits and adds a random mask for every pair that it belongs to: one of
the two adds it, the other subtracts it. A mask is the ChaCha20 keystream of a secret that the pair agrees on (X25519);
the server, which passes the public keys on, cannot compute it. Integers modulo 2^64 add exactly, so masks cancel to the
last bit, and rounding to 2^-bits is all that it costs.

This protects against a server that follows the protocol and looks at what it gets. It does not protect against one that
hands out keys of its own, nor against one that all other clients help.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from dsal.errors import FileFormatError, InputError
from dsal.integrations.needs import needs

BITS = 36  # behind the binary point: numbers are multiples of 1.5e-11, and their sum must be below 6.7e7
_HEADROOM = 62  # bits of a sum; one more is the sign
_ASYMMETRIC = "cryptography.hazmat.primitives.asymmetric.x25519"


def new_keys() -> tuple[bytes, bytes]:
    """Return a private key and its public key."""
    private = needs(_ASYMMETRIC, "flower").X25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def masked(
    numbers: Mapping[str, NDArray[np.float64]], private: bytes, keys: Iterable[bytes], bits: int = BITS
) -> dict[str, NDArray[np.uint64]]:
    """Return numbers in fixed point under the masks of one client.

    Args:
        numbers: arrays by name, of the same names and shapes at every client.
        private: the private key of this client.
        keys: the public keys of all clients.
        bits: behind the binary point.

    Raises:
        InputError: this client would be alone, or the sum might overflow.
    """
    x25519, pairs = needs(_ASYMMETRIC, "flower"), sorted(set(keys))
    own = x25519.X25519PrivateKey.from_private_bytes(private)
    public = own.public_key().public_bytes_raw()
    if len(pairs) < 2 or public not in pairs:
        raise InputError("nothing is sent: masks need the keys of this client and of at least one other")
    hidden = {name: _fixed(numbers[name], bits, len(pairs)) for name in sorted(numbers)}
    for other in pairs:
        if other != public:
            stream = _Stream(own.exchange(x25519.X25519PublicKey.from_public_bytes(other)), public, other)
            for array in hidden.values():
                mask = stream.words(array.size).reshape(array.shape)
                array += mask if public < other else -mask  # modulo 2^64
    return hidden


def unmasked(parts: Iterable[Mapping[str, NDArray[np.uint64]]], bits: int = BITS) -> dict[str, NDArray[np.float64]]:
    """Return the sums of what all clients have masked; with one missing they are noise.

    >>> (a, a_public), (b, b_public) = new_keys(), new_keys()
    >>> one, two = masked({"x": np.array([1.5])}, a, [a_public, b_public]), {"x": np.array([-4.0])}
    >>> unmasked([one, masked(two, b, [a_public, b_public])])["x"].tolist()
    [-2.5]
    """
    total: dict[str, NDArray[np.uint64]] = {}
    for part in parts:
        for name, array in part.items():
            if array.dtype != np.uint64 or (name in total and total[name].shape != array.shape):
                raise FileFormatError(f"a client sent {name} as {array.dtype} of shape {array.shape}")
            total[name] = total[name] + array if name in total else array
    return {name: np.ldexp(array.view(np.int64).astype(np.float64), -bits) for name, array in total.items()}


def _fixed(array: NDArray[np.float64], bits: int, clients: int) -> NDArray[np.uint64]:
    limit = 2.0 ** (_HEADROOM - bits) / clients
    largest = float(np.abs(array).max(initial=0.0))
    if not largest < limit:
        raise InputError(
            f"sums up to {largest:.3g} may overflow: with {bits} bits and {clients} clients they must be below "
            f"{limit:.3g}. Standardise the features, or take fewer bits"
        )
    return np.rint(np.ldexp(array, bits)).astype(np.int64).view(np.uint64)


class _Stream:
    """The keystream of two clients, the same on both sides."""

    def __init__(self, secret: bytes, one: bytes, two: bytes) -> None:
        hkdf = needs("cryptography.hazmat.primitives.kdf.hkdf", "flower").HKDF
        ciphers = needs("cryptography.hazmat.primitives.ciphers", "flower")
        sha256 = needs("cryptography.hazmat.primitives.hashes", "flower").SHA256()
        info = b"dsal masks" + min(one, two) + max(one, two)
        key = hkdf(algorithm=sha256, length=32, salt=None, info=info).derive(secret)
        self._cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next words."""
        return np.frombuffer(self._cipher.update(bytes(8 * count)), dtype="<u8").astype(np.uint64)
