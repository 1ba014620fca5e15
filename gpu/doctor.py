"""What the GPU backend needs on this machine, and what to do where it is missing."""

import importlib.metadata
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from iosim.errors import IosimError


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: whether it is fine, what was found, what to do if not."""

    what: str
    fine: bool
    found: str
    advice: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the record that `iosim gpu doctor` prints."""
        return {
            "check": self.what,
            "fine": self.fine,
            "found": self.found,
            "do": "" if self.fine else self.advice,
        }


INSTALL = "pip install 'iosim[gpu]'"
WHEELS = ("numba-cuda", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-nvvm", "nvidia-nvjitlink")


def examine() -> Iterator[Finding]:
    """Yield the findings one by one, the basic ones first; nothing here raises."""
    for wheel in WHEELS:
        yield _wheel(wheel)
    yield _numpy()
    yield _guarded("compiler", _compiler, f"{INSTALL} brings the compiler's wheels")
    device = _guarded("device", _device, "install NVIDIA's driver, version 580 or later")
    yield device
    ncu = shutil.which("ncu")
    yield Finding(
        "ncu", ncu is not None, ncu or "not on the PATH", "install Nsight Compute for gpu measure"
    )
    if device.fine and ncu:
        yield _guarded(
            "counters", _counters, "run as root, or let everybody read counters (see docs/gpu.md)"
        )


def _wheel(name: str) -> Finding:
    try:
        return Finding(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        # A CUDA toolkit may stand in for the compiler's wheels; the compiler's check decides.
        optional = name.startswith("nvidia-")
        return Finding(name, optional, "not installed as a wheel", INSTALL)


def _numpy() -> Finding:
    version = importlib.metadata.version("numpy")
    major, minor = (int(part) for part in version.split(".")[:2])
    return Finding(
        "numpy", (major, minor) < (2, 5), version, "pip install 'numpy<2.5', as numba-cuda needs it"
    )


def _guarded(what: str, look: Callable[[], str], advice: str) -> Finding:
    try:
        return Finding(what, True, look())
    except Exception as error:
        text = str(error).strip().partition("\n")[0].rstrip(": ")
        text = text.removesuffix("; iosim gpu doctor says more")
        return Finding(what, False, text or type(error).__name__, advice)


def _compiler() -> str:
    """Compile a small kernel, which needs no GPU."""
    from numba.cuda import types

    from iosim.gpu.compiler import assemble

    def kernel(x: float) -> None:
        pass

    made = assemble(kernel, (types.float32,), (8, 0), 32)
    return f"compiles ({len(made.cubin)} bytes of machine code)"


def _device() -> str:
    from iosim.gpu.launch import capability, context, limits

    device = context().device
    name = device.name.decode() if isinstance(device.name, bytes) else device.name
    target = capability()
    return (
        f"{name}, compute capability {target[0]}.{target[1]}, "
        f"{limits().shared_bytes} bytes of shared memory a block"
    )


PROBE = """\
import numpy as np
from numba import cuda
cuda.current_context()
x = cuda.to_device(np.zeros(1 << 20))
cuda.profile_start()
x.copy_to_device(x)
from iosim.gpu.doctor import touch
touch()
cuda.profile_stop()
"""


def touch() -> None:
    """Launch a kernel that does nothing, for the counters to see."""
    from numba.cuda import types

    from iosim.gpu.compiler import assemble
    from iosim.gpu.launch import Loaded, capability
    from iosim.gpu.variant import Variant

    def kernel(x: float) -> None:
        pass

    # The variant says how many threads to launch, and that no shared memory is needed.
    variant = Variant("standard_softmax", "float16", head_dim=16, br=16, bc=16)
    made = assemble(kernel, (types.int64,), capability(), variant.threads)
    Loaded(made, variant).launch(1, [0], ())


def _counters() -> str:
    """Read one counter of one kernel."""
    from iosim.gpu import ncu as nsight
    from iosim.gpu.measure import COUNTERS, parse

    done = nsight.run(
        nsight.find(),
        (sys.executable, "-c", PROBE),
        (COUNTERS["hbm_read_bytes"],),
        from_start=False,
        timeout_seconds=120,
    )
    if not any(parse(done.page)):
        raise IosimError(nsight.explain(done.page + done.printed))
    return "readable"
