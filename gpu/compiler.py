"""Compiling kernels, with and without a GPU; what is private to numba-cuda stays in this file."""

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from iosim.errors import IosimError

Capability = tuple[Any, ...]  # (8, 0) or (9, 0, "a")


@dataclass(frozen=True)
class Assembled:
    """Machine code and the name of the kernel in it."""

    name: str
    cubin: bytes


def assemble(kernel: Callable[..., None], kinds: tuple[Any, ...], capability: Capability,
             threads: int, min_blocks: int = 1) -> "Assembled":  # fmt: skip
    """Return the machine code of a kernel for arguments of the numba types `kinds`; needs no GPU.

    `capability` is a compute capability such as (8, 0) or (9, 0, "a").
    """
    from numba.cuda import compiler

    with _pretending(capability):
        return _assemble(compiler, kernel, kinds, capability, threads, min_blocks)


@contextlib.contextmanager
def _pretending(capability: Capability) -> Iterator[None]:
    """Let numba-cuda compile device functions for a GPU that need not be there."""
    from numba.cuda import dispatcher

    original = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = original


def _assemble(
    compiler: Any,
    kernel: Callable[..., None],
    kinds: tuple[Any, ...],
    capability: Capability,
    threads: int,
    min_blocks: int,
) -> Assembled:
    library, _ = compiler._compile_pyfunc_with_fixup(
        kernel,
        kinds,
        debug=False,
        lineinfo=False,
        device=False,
        fastmath=False,
        cc=capability,
        opt=True,
        abi="numba",
        abi_info=None,
        forceinline=False,
        launch_bounds=(threads, min_blocks),
        lto=True,
    )
    library._lto = True
    return Assembled(library._entry_name, bytes(library.get_cubin(cc=capability).code))


@dataclass(frozen=True)
class Resources:
    """What machine code uses: registers a thread, local memory, instructions by name."""

    registers: int
    instructions: dict[str, int]

    def count(self, *names: str) -> int:
        """Return how many instructions have one of these names (what stands before a dot)."""
        return sum(self.instructions.get(name, 0) for name in names)

    @property
    def local_instructions(self) -> int:
        """Loads and stores of local memory: spilled registers and arrays that are none."""
        return self.count("LDL", "STL")


_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+)", re.M)
_REGISTER = re.compile(r"\bR(\d+)\b")


def resources(cubin: bytes, nvdisasm: str) -> Resources:
    """Disassemble machine code with the program `nvdisasm` and return what it uses.

    Raises IosimError where the program fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [nvdisasm, "-c", str(path)], capture_output=True, text=True, check=True, timeout=120
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise IosimError(f"{nvdisasm} failed ({error}); check that it is installed") from error
    found: dict[str, int] = {}
    for match in _INSTRUCTION.finditer(done.stdout):
        found[match[1]] = found.get(match[1], 0) + 1
    highest = max((int(number) for number in _REGISTER.findall(done.stdout)), default=-1)
    return Resources(highest + 1, found)
