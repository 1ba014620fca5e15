"""What the compiled loops share: the compiling decorator, bit operations and a prefetch hint.

Everything here also runs as plain Python under `NUMBA_DISABLE_JIT=1`.  Words of bits are int64
(bit 63 is the sign): mixing int64 and uint64 would give floats in numba.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

#: Accesses by which a loop fetches its table ahead, once the table is too large for a core's own
#: cache: more entries than CACHED.
AHEAD: Final = 24
CACHED: Final = 1 << 19

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a loop with numba: cached on disk, without the interpreter lock.

    What is on disk is dropped when the loop's own file changes, not when this one does.
    """
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def compiled_afresh(function: Function) -> Function:
    """Compile without the cache on disk: for a loop that takes in one of another module.

    numba looks only at the file of the loop itself to see whether what it stored is out of date.
    """
    return cast(Function, numba.njit(nogil=True)(function))


def inlined(function: Function) -> Function:
    """Compile a small function into its callers: a call with arrays would count references."""
    return cast(Function, numba.njit(inline="always")(function))


def popcount(word: Any) -> int:
    """Count the bits set in an int64 word.

    >>> popcount(0b1011), popcount(-1)
    (3, 64)
    """
    return (int(word) & 0xFFFFFFFFFFFFFFFF).bit_count()


def top_bit(word: Any) -> int:
    """Index of the highest bit set in an int64 word that is not 0.

    >>> top_bit(0b1011), top_bit(-1)
    (3, 63)
    """
    return (int(word) & 0xFFFFFFFFFFFFFFFF).bit_length() - 1


def prefetch(array: Any, index: int) -> None:
    """Hint that `array[index]` is wanted soon; never reads or writes it, so any index is safe."""


@intrinsic
def _ctpop(_typing: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.int64), generate


@intrinsic
def _ctlz(_typing: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic
def _prefetch(_typing: Any, array: Any, _index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        byte_pointer = ir.PointerType(ir.IntType(8))
        address = builder.bitcast(builder.gep(data, [args[1]]), byte_pointer)
        int32 = ir.IntType(32)
        hint = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte_pointer, int32, int32, int32]),
            "llvm.prefetch.p0i8" if "i8*" in str(byte_pointer) else "llvm.prefetch.p0",
        )
        write, keep_close, data_cache = (ir.Constant(int32, value) for value in (1, 3, 1))
        builder.call(hint, [address, write, keep_close, data_cache])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@overload(popcount, strict=False)
def _popcount_compiled(word: Any) -> Any:
    return lambda word: _ctpop(word)  # type: ignore[call-arg]


@overload(top_bit, strict=False)
def _top_bit_compiled(word: Any) -> Any:
    return lambda word: 63 - _ctlz(word)  # type: ignore[call-arg]


@overload(prefetch, strict=False)
def _prefetch_compiled(array: Any, index: Any) -> Any:
    return lambda array, index: _prefetch(array, index)  # type: ignore[call-arg]
