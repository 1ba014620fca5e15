"""Run a schedule's tile plan on the GPU."""

import functools
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iosim.errors import IosimError
from iosim.gpu import compiler
from iosim.gpu.arrays import View, view
from iosim.gpu.plan import Launch, Layout, Limits, launches, workspace
from iosim.gpu.variant import Variant
from iosim.precision import precision
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape


@dataclass(frozen=True, eq=False)
class Result:
    """O (batch, heads, n_q, d) and LSE (batch, heads, n_q), which only `flash2` writes.

    NumPy arrays if Q was one, torch tensors if Q was one, else arrays of numba.cuda.
    """

    O: Any
    LSE: Any | None


def run(
    schedule: Schedule,
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float | None = None,
    tuned: Mapping[str, Any] | None = None,
) -> Result:
    """Run a schedule on q (batch, heads, n_q, d), k and v (batch, kv_heads, n_k, d).

    Leading axes of size 1 may be missing. The launches go to the default stream and are not waited
    for, except to copy results to NumPy. Raises IosimError for arrays that do not have the
    schedule's shape or dtype, and as `launches` and `view` do.
    """
    prepared = Prepared(schedule, q, k, v, scale=scale, tuned=tuned)
    prepared.launch()
    return prepared.result()


class Prepared:
    """A schedule with its arrays in place and its kernels loaded, to be launched any times."""

    def __init__(
        self,
        schedule: Schedule,
        q: Any,
        k: Any,
        v: Any,
        *,
        scale: float | None = None,
        tuned: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the arguments of `run`."""
        context()
        self.schedule = schedule
        views = [view(array, name) for array, name in zip((q, k, v), "QKV", strict=True)]
        _check(views, schedule.shape)
        self._like = q
        layout = Layout(
            tuple((x.strides[0], x.strides[1], x.strides[2]) for x in views),
            all(x.aligned for x in views),
        )
        steps = launches(schedule, layout, scale, limits(), tuned)
        self.kernels = [load(step.variant, step) for step in steps]
        self._buffers = {name: x.address for name, x in zip("QKV", views, strict=True)}
        self._owners: dict[str, Any] = {name: x.owner for name, x in zip("QKV", views, strict=True)}
        for name, (shape, dtype) in workspace(schedule).items():
            array = _empty(q, shape, dtype)
            self._owners[name] = array
            self._buffers[name] = _address(array)
        self._steps = steps

    def launch(self) -> None:
        """Launch the kernels on the default stream."""
        for kernel, step in zip(self.kernels, self._steps, strict=True):
            kernel.launch(step.grid, [self._buffers[name] for name in step.buffers], step.numbers)

    def result(self) -> Result:
        """Return the outputs, copied to NumPy if Q was a NumPy array."""
        o, lse = self._owners["O"], self._owners.get("LSE")
        if not isinstance(self._like, np.ndarray):
            return Result(o, lse)
        outputs = workspace(self.schedule)
        arrays = {
            name: array.copy_to_host().view(precision(dtype).storage).reshape(shape)
            for name, (shape, dtype) in outputs.items()
            if (array := {"O": o, "LSE": lse}.get(name)) is not None
        }
        return Result(arrays["O"], arrays.get("LSE"))

    def release(self) -> None:
        """Let go of the device memory."""
        self._owners.clear()

    def scratch(self, name: str) -> Any:
        """Return the bytes of a buffer as a NumPy array of its dtype: S, P, m or l, say."""
        shape, dtype = workspace(self.schedule)[name]
        array = self._owners[name]
        host = array.cpu().numpy() if hasattr(array, "cpu") else array.copy_to_host()
        return host.reshape(-1).view(precision(dtype).storage).reshape(shape)


def _check(views: list[View], shape: AttentionShape) -> None:
    """Raise IosimError for arrays that are not those of the schedule."""
    for x, name, heads, rows in zip(
        views,
        "QKV",
        (shape.heads, shape.kv_heads, shape.kv_heads),
        (shape.n_q, shape.n_k, shape.n_k),
        strict=True,
    ):
        expected = (shape.batch, heads, rows, shape.head_dim)
        if x.shape != expected:
            raise IosimError(f"{name} has shape {x.shape}, but the schedule is for {expected}")
        if x.dtype != shape.dtype:
            raise IosimError(f"{name} has dtype {x.dtype}, but the schedule is for {shape.dtype}")


def _empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Return device memory of the library that `like` comes from."""
    if hasattr(like, "new_empty"):  # torch
        import torch

        return like.new_empty(shape, dtype=getattr(torch, dtype))
    from numba import cuda

    storage = precision(dtype).storage
    if isinstance(like, np.ndarray) or dtype == "bfloat16":
        size = int(np.prod(shape, dtype=np.int64)) * storage.itemsize
        return cuda.device_array(size, np.uint8)
    return cuda.device_array(shape, storage)


def _address(array: Any) -> int:
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr())
    return int(array.__cuda_array_interface__["data"][0])


def context() -> Any:
    """Return the current CUDA context; raises IosimError where there is no driver or device."""
    try:
        from numba import cuda
    except ImportError as error:
        raise IosimError(
            "the GPU backend is not installed; install it with pip install 'iosim[gpu]'"
        ) from error
    try:
        return cuda.current_context()
    except Exception as error:
        lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
        lines = [line for line in lines if not line.startswith("Error at")]
        reason = lines[0] if lines else type(error).__name__
        raise IosimError(
            f"no GPU can be used ({reason.rstrip('.')}); iosim gpu doctor says more"
        ) from error


@functools.cache
def limits() -> Limits:
    """Return what the current device gives a block."""
    device = context().device
    return Limits(
        shared_bytes=device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        registers=device.MAX_REGISTERS_PER_BLOCK,
        warpgroups=tuple(device.compute_capability[:2]) == (9, 0),
    )


def capability() -> compiler.Capability:
    """Return the compute capability to compile for: the current device's, with its own features."""
    major, minor = context().device.compute_capability[:2]
    if (major, minor) < (8, 0):
        raise IosimError(
            f"the GPU has compute capability {major}.{minor}, but the kernels need 8.0"
        )
    return (major, minor, "a") if major >= 9 else (major, minor)


class Loaded:
    """A kernel in the current context."""

    def __init__(self, assembled: compiler.Assembled, variant: Variant) -> None:
        """Load machine code and let it have the shared memory that it needs."""
        from cuda.bindings import driver

        self.variant = variant
        attribute = driver.CUfunction_attribute
        module = _done(driver.cuModuleLoadData(assembled.cubin), "loading a kernel")
        self._module = module
        self.function = _done(
            driver.cuModuleGetFunction(module, assembled.name.encode()), "finding a kernel"
        )
        if variant.shared_bytes > 48 * 1024:
            opt_in = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _done(
                driver.cuFuncSetAttribute(self.function, opt_in, variant.shared_bytes),
                f"asking for {variant.shared_bytes} bytes of shared memory",
            )
        self.registers = self._attribute(attribute.CU_FUNC_ATTRIBUTE_NUM_REGS)
        self.local_bytes = self._attribute(attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)

    def _attribute(self, which: Any) -> int:
        from cuda.bindings import driver

        return int(_done(driver.cuFuncGetAttribute(which, self.function), "asking about a kernel"))

    def launch(self, grid: int, buffers: list[int], numbers: tuple[Any, ...]) -> None:
        """Launch on the default stream; raises IosimError where the driver refuses."""
        import ctypes

        from cuda.bindings import driver

        values = (*buffers, *numbers)
        kinds = tuple(
            ctypes.c_float if isinstance(x, np.floating) else ctypes.c_int64 for x in values
        )
        plain = tuple(float(x) if isinstance(x, np.floating) else int(x) for x in values)
        _done(
            driver.cuLaunchKernel(
                self.function,
                *(grid, 1, 1),
                *(self.variant.threads, 1, 1),
                self.variant.shared_bytes,
                0,
                (plain, kinds),
                0,
            ),
            f"launching {self.variant.kernel}",
        )


def _done(answer: tuple[Any, ...], what: str) -> Any:
    """Return the result of a driver call, or raise IosimError with the driver's words."""
    from cuda.bindings import driver

    status, *values = answer
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise IosimError(f"the CUDA driver failed at {what}: {text.decode() if text else status}")
    return values[0] if values else None


_LOADED: dict[tuple[int, Variant], Loaded] = {}


def load(variant: Variant, step: Launch) -> Loaded:
    """Return the kernel of a variant in the current context, compiled if need be."""
    key = context().device.id, variant
    if key not in _LOADED:
        _LOADED[key] = Loaded(machine_code(variant, step, capability()), variant)
    return _LOADED[key]


def machine_code(variant: Variant, step: Launch, target: compiler.Capability) -> compiler.Assembled:
    """Return the machine code of a variant, from the cache folder if it is there.

    The folder is the environment variable IOSIM_CACHE, by default ~/.cache/iosim.
    """
    folder = Path(os.environ.get("IOSIM_CACHE") or Path.home() / ".cache" / "iosim")
    path = folder / f"{_fingerprint(variant, target)}.cubin"
    if path.is_file():
        name, _, cubin = path.read_bytes().partition(b"\n")
        return compiler.Assembled(name.decode(), cubin)
    from iosim.gpu import ptx

    made = compiler.assemble(
        step.factory(ptx, variant), step.kinds, target, variant.threads, variant.min_blocks
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_bytes(made.name.encode() + b"\n" + made.cubin)
        beside.replace(path)
    except OSError:  # a cache that cannot be written is no reason to fail
        pass
    return made


def _fingerprint(variant: Variant, target: compiler.Capability) -> str:
    """Return a name for machine code: its variant, target, sources and compiler."""
    import importlib.metadata

    text = repr((variant, target, importlib.metadata.version("numba-cuda"))).encode()
    return hashlib.sha256(text + _sources()).hexdigest()[:32]


@functools.cache
def _sources() -> bytes:
    here = Path(__file__).parent
    files = sorted([*here.glob("kernels/*.py"), here / "ptx.py", here / "variant.py"])
    return b"".join(path.read_bytes() for path in files)
