"""Arrays of other libraries as plain views of device memory: array interface, DLPack or NumPy."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from iosim.errors import IosimError
from iosim.precision import precision

BY_TYPESTR = {"<f2": "float16", "<f4": "float32", "<f8": "float64"}
_CUDA = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged
_BY_DLPACK = {(2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (4, 16): "bfloat16"}


@dataclass(frozen=True, eq=False)
class View:
    """An array in device memory: where it begins, its shape, its strides in bytes, its dtype.

    `owner` keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    owner: Any

    @property
    def aligned(self) -> bool:
        """Whether every row begins at a multiple of 16 bytes."""
        return not any(number % 16 for number in (self.address, *self.strides[:-1]))


def view(array: Any, name: str) -> View:
    """Return an array of numba, CuPy, torch or NumPy as a view of device memory.

    It has four axes (batch, heads, rows, words), of which the leading ones may be missing. NumPy
    arrays are copied to the device. Raises IosimError for another kind of object, a last axis that
    is not contiguous and, from `on_device`, memory of another device.
    """
    found = _by_interface(array) or _by_dlpack(array, name)
    if found is None:
        found = _copied(array, name)
    else:
        on_device(found, name)
    if not 2 <= len(found.shape) <= 4:
        raise IosimError(
            f"{name} has {len(found.shape)} axes, but it needs 2 to 4: (batch, heads, rows, words)"
        )
    item = precision(found.dtype).storage.itemsize
    if found.shape[-1] > 1 and found.strides[-1] != item:
        raise IosimError(
            f"{name} has a last axis with a stride of {found.strides[-1]} bytes, but it must be "
            f"contiguous ({item} bytes); give a contiguous copy"
        )
    missing = 4 - len(found.shape)
    return View(
        found.address,
        (1,) * missing + found.shape,
        (0,) * missing + found.strides,
        found.dtype,
        found.owner,
    )


def _by_interface(array: Any) -> View | None:
    try:
        stated = array.__cuda_array_interface__
    except (AttributeError, TypeError, RuntimeError):  # torch has none for bfloat16
        return None
    dtype = BY_TYPESTR.get(stated["typestr"])
    if dtype is None:
        return None
    shape = tuple(stated["shape"])
    strides = stated.get("strides") or contiguous(shape, precision(dtype).storage.itemsize)
    return View(stated["data"][0], shape, tuple(strides), dtype, array)


def contiguous(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """Return the strides in bytes of a C-contiguous array.

    >>> contiguous((2, 3, 4), 2)
    (24, 8, 2)
    """
    strides = [item]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int),
        ("device_id", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _by_dlpack(array: Any, name: str) -> View | None:
    """Read a DLPack capsule; the capsule itself is kept, which keeps the memory."""
    if not hasattr(array, "__dlpack_device__") or array.__dlpack_device__()[0] not in _CUDA:
        return None
    detached = array.detach() if hasattr(array, "detach") else array
    capsule = detached.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    dtype = _BY_DLPACK.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise IosimError(f"{name} has a dtype that no kernel takes; give float16 or bfloat16")
    item = precision(dtype).storage.itemsize
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = contiguous(shape, item)
    if tensor.strides:
        strides = tuple(step * item for step in tensor.strides[: tensor.ndim])
    return View(tensor.data + tensor.byte_offset, shape, strides, dtype, (array, capsule))


def _copied(array: Any, name: str) -> View:
    """Copy a NumPy array to the device."""
    from numba import cuda

    if not isinstance(array, np.ndarray):
        raise IosimError(
            f"{name} is a {type(array).__name__} in no device's memory; give a NumPy array or one "
            "with __cuda_array_interface__ or __dlpack__"
        )
    dtype = array.dtype.name
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        raise IosimError(f"{name} has dtype {dtype}, but it must be float16, bfloat16 or float32")
    words = np.ascontiguousarray(array)
    owner = cuda.to_device(words.reshape(-1).view(np.uint8))
    address = owner.__cuda_array_interface__["data"][0]
    return View(address, array.shape, contiguous(array.shape, words.itemsize), dtype, owner)


def on_device(found: View, name: str) -> None:
    """Raise IosimError for memory that does not belong to the current device."""
    from cuda.bindings import driver
    from numba import cuda

    current = cuda.current_context().device.id
    ordinal = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, owner = driver.cuPointerGetAttribute(ordinal, found.address)
    if status != driver.CUresult.CUDA_SUCCESS or int(owner) != current:
        where = "no device" if status != driver.CUresult.CUDA_SUCCESS else f"device {int(owner)}"
        raise IosimError(
            f"{name} lives on {where}, but the kernels run on device {current}; move it there"
        )
