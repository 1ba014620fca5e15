"""PTX instructions as functions that kernels call: tensor cores, asynchronous copies, memory.

Everything here is the device's side of what `iosim.gpu.emulator` does with NumPy: the two offer the
same names, and a kernel takes either. Fragments are those of the PTX ISA manual (9.7.14, mma and
ldmatrix); an address of shared memory is a 32-bit offset, one of global memory a 64-bit number.
"""

import inspect
from collections.abc import Callable
from math import log as math_log
from typing import Any

import numpy as np
from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic
from numba.cuda.typing import signature

# numba types the device's functions by compiling them: at those, and at what its untyped decorators
# return, the type checker has nothing to go by, which is what each "type: ignore" below says.
Device = Callable[..., Any]

_LLVM = {
    types.float32: ir.FloatType(),
    types.int32: ir.IntType(32),
    types.int64: ir.IntType(64),
    types.void: ir.VoidType(),
}
_LETTER = {types.float32: "f", types.int32: "r", types.int64: "l"}
_SHARED = 3  # the address space of shared memory in NVVM
F, I, L = types.float32, types.int32, types.int64


def _instruction(
    text: str, results: tuple[Any, ...], arguments: tuple[Any, ...], *, effect: bool = False
) -> Device:
    """Return a device function that is one PTX text with $0, $1, ... as results, then arguments.

    `effect` says that it touches memory or other lanes, so that the compiler keeps its place.
    """
    given = types.void
    if len(results) > 1:
        given = types.UniTuple(results[0], len(results))
    elif results:
        given = results[0]
    constraints = [f"={_LETTER[kind]}" for kind in results]
    constraints += [_LETTER[kind] for kind in arguments]
    if effect:
        constraints.append("~{memory}")

    def generate(context: Any, builder: Any, sign: Any, values: Any) -> Any:
        if len(results) > 1:
            returned: Any = ir.LiteralStructType([_LLVM[kind] for kind in results])
        else:
            returned = _LLVM[results[0] if results else types.void]
        form = ir.FunctionType(returned, [_LLVM[kind] for kind in arguments])
        call = builder.call(
            ir.InlineAsm(form, text, ",".join(constraints), side_effect=effect), values
        )
        if len(results) < 2:
            return call if results else context.get_dummy_value()
        parts = [builder.extract_value(call, i) for i in range(len(results))]
        return context.make_tuple(builder, given, parts)

    def typed(typingctx: Any, *found: Any) -> Any:
        return signature(given, *arguments), generate

    # numba asks for the names of the arguments, of which there are as many as operands.
    names = ["typingctx", *(f"x{i}" for i in range(len(arguments)))]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    typed.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in names]
    )
    return intrinsic(typed)  # type: ignore[no-any-return]


def _mma(shape: str, kinds: str) -> Device:
    a = "{$4,$5,$6,$7}" if shape != "m16n8k4" else "{$4,$5}"
    return _instruction(
        f"mma.sync.aligned.{shape}.row.col.f32.{kinds}.{kinds}.f32 "
        f"{{$0,$1,$2,$3}}, {a}, {{$8,$9}}, {{$10,$11,$12,$13}};",
        (F, F, F, F),
        (I, I, I, I, I, I, F, F, F, F),
    )


# D = A B + C for a 16 x 8 tile: registers a0..a3, b0, b1, c0..c3 -> d0..d3.
mma_float16 = _mma("m16n8k16", "f16")
mma_bfloat16 = _mma("m16n8k16", "bf16")
mma_tf32 = _mma("m16n8k8", "tf32")

# Four 8 x 8 matrices of 16-bit words; lane l gives the address of row l % 8 of matrix l / 8.
_LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{$0,$1,$2,$3}}, [$4];"
ldmatrix = _instruction(_LDMATRIX.format(""), (I, I, I, I), (I,), effect=True)
ldmatrix_transposed = _instruction(_LDMATRIX.format(".trans"), (I, I, I, I), (I,), effect=True)

# 16 bytes from global to shared memory past L1: all of them, or zeros where `bytes` is 0.
copy_async = _instruction(
    "cp.async.cg.shared.global [$0], [$1], 16, $2;", (), (I, L, I), effect=True
)
commit_copies = _instruction("cp.async.commit_group;", (), (), effect=True)
wait_for_copies = _instruction("cp.async.wait_group 0;", (), (), effect=True)

load_shared_int = _instruction("ld.shared.b32 $0, [$1];", (I,), (I,), effect=True)
load_shared_float = _instruction("ld.shared.f32 $0, [$1];", (F,), (I,), effect=True)
load_shared_16 = _instruction(
    "ld.shared.v4.b32 {$0,$1,$2,$3}, [$4];", (I, I, I, I), (I,), effect=True
)
store_shared_int = _instruction("st.shared.b32 [$0], $1;", (), (I, I), effect=True)
store_shared_float = _instruction("st.shared.f32 [$0], $1;", (), (I, F), effect=True)
store_shared_2 = _instruction(
    "{.reg .b16 h; cvt.u16.u32 h, $1; st.shared.b16 [$0], h;}", (), (I, I), effect=True
)

# Loads past L1 (.cg), so that what one step wrote another step of the block can read.
load_float = _instruction("ld.global.cg.f32 $0, [$1];", (F,), (L,), effect=True)
load_4 = _instruction("ld.global.cg.b32 $0, [$1];", (I,), (L,), effect=True)
load_2 = _instruction(
    "{.reg .b16 h; ld.global.cg.b16 h, [$1]; cvt.u32.u16 $0, h;}", (I,), (L,), effect=True
)
load_16 = _instruction("ld.global.cg.v4.b32 {$0,$1,$2,$3}, [$4];", (I, I, I, I), (L,), effect=True)
store_float = _instruction("st.global.f32 [$0], $1;", (), (L, F), effect=True)
store_4 = _instruction("st.global.b32 [$0], $1;", (), (L, I), effect=True)
store_2 = _instruction(
    "{.reg .b16 h; cvt.u16.u32 h, $1; st.global.b16 [$0], h;}", (), (L, I), effect=True
)
store_16 = _instruction("st.global.v4.b32 [$0], {$1,$2,$3,$4};", (), (L, I, I, I, I), effect=True)

# A counter that blocks meet at: what a block did before it adds is seen by who then reads the sum.
add_release = _instruction("red.release.gpu.global.add.u32 [$0], $1;", (), (L, I), effect=True)
load_acquire = _instruction("ld.acquire.gpu.global.u32 $0, [$1];", (I,), (L,), effect=True)
multiprocessor = _instruction("mov.u32 $0, %smid;", (I,), (), effect=True)
clock = _instruction("mov.u64 $0, %clock64;", (L,), (), effect=True)  # of the multiprocessor

# Two floats rounded to nearest even in one register, the first in the low half; and back.
pack_float16 = _instruction("cvt.rn.f16x2.f32 $0, $2, $1;", (I,), (F, F))
pack_bfloat16 = _instruction("cvt.rn.bf16x2.f32 $0, $2, $1;", (I,), (F, F))
unpack_float16 = _instruction(
    "{.reg .b16 a, b; mov.b32 {a, b}, $2; cvt.f32.f16 $0, a; cvt.f32.f16 $1, b;}", (F, F), (I,)
)
unpack_bfloat16 = _instruction(
    "{.reg .b32 a; shl.b32 a, $2, 16; mov.b32 $0, a; and.b32 a, $2, 0xffff0000; mov.b32 $1, a;}",
    (F, F),
    (I,),
)
as_float = _instruction("mov.b32 $0, $1;", (F,), (I,))
as_int = _instruction("mov.b32 $0, $1;", (I,), (F,))

exp2 = _instruction("ex2.approx.ftz.f32 $0, $1;", (F,), (F,))
maximum = _instruction("max.f32 $0, $1, $2;", (F,), (F, F))  # the other one beside a NaN
# A product that is rounded before anything is added to it: never part of a fused multiply-add.
product = _instruction("mul.rn.f32 $0, $1, $2;", (F,), (F, F))


# What ordinary and asynchronous copies wrote becomes visible to warpgroup products.
fence_products = _instruction("fence.proxy.async.shared::cta;", (), (), effect=True)


@intrinsic
def shared_base(typingctx):  # type: ignore[no-untyped-def]
    """Return the offset at which the block's dynamic shared memory begins."""

    def generate(context, builder, sign, values):  # type: ignore[no-untyped-def]
        name = "iosim_dynamic_shared"
        found = builder.module.globals.get(name)
        if found is None:
            form = ir.ArrayType(ir.IntType(8), 0)
            found = ir.GlobalVariable(builder.module, form, name, addrspace=_SHARED)
            found.linkage = "external"
            found.align = 1024  # the pattern of 128-byte rows that warpgroup products read
        return builder.ptrtoint(found, ir.IntType(32))

    return signature(types.int32), generate


float32 = np.float32
int32 = np.int32
int64 = np.int64


def device(function: Device) -> Device:
    """Return a function for the kernels to call, always inlined."""
    return cuda.jit(device=True, forceinline=True)(function)  # type: ignore[no-any-return]


@device
def thread():  # type: ignore[no-untyped-def]
    """Return the number of this thread in its block."""
    return cuda.threadIdx.x


@device
def block():  # type: ignore[no-untyped-def]
    """Return the number of this block in its grid."""
    return cuda.blockIdx.x


@device
def blocks():  # type: ignore[no-untyped-def]
    """Return the number of blocks in the grid."""
    return cuda.gridDim.x


@device
def from_lane_xor(value, bits):  # type: ignore[no-untyped-def]
    """Return the value of the lane whose number differs from this one's by `bits`."""
    return cuda.shfl_xor_sync(0xFFFFFFFF, value, bits)


@device
def logarithm(value):  # type: ignore[no-untyped-def]
    """Return the natural logarithm."""
    return math_log(value)


@device
def lane_number():  # type: ignore[no-untyped-def]
    """Return the number of this thread in its warp."""
    return cuda.threadIdx.x & 31


@device
def barrier():  # type: ignore[no-untyped-def]
    """Wait for all threads of the block."""
    cuda.syncthreads()


@device
def warp_barrier():  # type: ignore[no-untyped-def]
    """Wait for all lanes of the warp."""
    cuda.syncwarp()


def _pointer(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    from numba.cuda.np.arrayobj import make_array

    return make_array(kind)(context, builder, value).data


def _on_arrays(text: str, floats: int, integers: int, descriptors: int, tied: bool) -> Device:
    """Return a device function on (floats, [integers,] descriptors...) that rewrites the floats.

    The arrays are local ones, whose words are registers: $0 .. are the floats, then the integers
    and the descriptors; with `tied` the floats are read too.
    """

    def generate(context: Any, builder: Any, sign: Any, values: Any) -> Any:
        kinds = list(sign.args)
        out = _pointer(context, builder, kinds[0], values[0])
        zero = ir.IntType(32)

        def places(pointer: Any, count: int) -> list[Any]:
            return [builder.gep(pointer, [zero(i)]) for i in range(count)]

        given = []
        if integers:
            found = _pointer(context, builder, kinds[1], values[1])
            given += [builder.load(place) for place in places(found, integers)]
        given += list(values[len(values) - descriptors :])
        letters = ["=f"] * floats + ["r"] * integers + ["l"] * descriptors
        if tied:
            given += [builder.load(place) for place in places(out, floats)]
            letters += [str(i) for i in range(floats)]
        form = ir.FunctionType(
            ir.LiteralStructType([ir.FloatType()] * floats), [value.type for value in given]
        )
        letters.append("~{memory}")
        call = builder.call(ir.InlineAsm(form, text, ",".join(letters), side_effect=True), given)
        for i, place in enumerate(places(out, floats)):
            builder.store(builder.extract_value(call, i), place)
        return context.get_dummy_value()

    def with_integers(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        return signature(types.void, a, b, types.int64), generate

    def without(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        return signature(types.void, a, types.int64, types.int64), generate

    return intrinsic(with_integers if integers else without)  # type: ignore[no-any-return]


def _wgmma(n: int, dtype: str, a: str, b: str, accumulate: str, transposed: bool) -> str:
    kind = "bf16" if dtype == "bfloat16" else "f16"
    d = ",".join(f"${i}" for i in range(n // 2))
    turns = f"{int(transposed)}" if a.startswith("{") else f"0, {int(transposed)}"
    return (
        f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind} {{{d}}}, {a}, {b}, "
        f"{accumulate}, 1, 1, {turns};"
    )


def warpgroup_scores(n: int, k_steps: int, dtype: str, q_panel: int, k_panel: int) -> Device:
    """Return product(s, q, k): 64 rows of Q times n rows of K, by the descriptors of both.

    Four steps of 16 words lie in a panel of 128-byte rows, 32 bytes apart; panels are so many bytes
    apart.
    """
    lines = ["{.reg .pred p0, p1; .reg .b64 a, b; setp.ne.b32 p0, 0, 0; setp.ne.b32 p1, 1, 0;"]
    lines.append("wgmma.fence.sync.aligned;")
    q, k = f"${n // 2}", f"${n // 2 + 1}"
    for step in range(k_steps):
        along = step % 4 * 32
        lines.append(f"add.s64 a, {q}, {(along + step // 4 * q_panel) >> 4};")
        lines.append(f"add.s64 b, {k}, {(along + step // 4 * k_panel) >> 4};")
        lines.append(_wgmma(n, dtype, "a", "b", "p1" if step else "p0", False))
    lines.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;}")
    return _on_arrays("\n".join(lines), n // 2, 0, 2, tied=False)


def warpgroup_output(n: int, k_steps: int, dtype: str) -> Device:
    """Return product(o, p, v): O += P V, P from registers, V by its descriptor, 16 rows a step."""
    lines = ["{.reg .pred p1; .reg .b64 b; setp.ne.b32 p1, 1, 0;", "wgmma.fence.sync.aligned;"]
    first = n // 2
    v = f"${first + 4 * k_steps}"
    for step in range(k_steps):
        a = ",".join(f"${first + 4 * step + i}" for i in range(4))
        lines.append(f"add.s64 b, {v}, {(step * 16 * 128) >> 4};")
        lines.append(_wgmma(n, dtype, f"{{{a}}}", "b", "p1", True))
    lines.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;}")
    return _on_arrays("\n".join(lines), n // 2, 4 * k_steps, 1, tied=True)
