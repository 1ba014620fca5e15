"""A GPU of NumPy and threads: runs the kernels' own source, one Python thread for each lane.

It offers the names of `iosim.gpu.ptx`, each instruction written from the fragment layouts of the
PTX ISA manual. It is slow (milliseconds for a matrix product) and strict: an access outside an
array, a copy that nobody waited for and a word of fast memory that nobody wrote all show.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.errors import IosimError
from iosim.gpu.fragments import (
    WARP,
    Bytes,
    halves,
    matrices,
    matrix_product,
    packed,
    to_float,
    unpacked,
)

POISON = 0xFF  # NaN in every float format


@dataclass
class Memory:
    """Global memory: arrays by address, and the bytes read and written of each."""

    arrays: dict[str, tuple[int, Bytes]] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, array: NDArray[Any]) -> int:
        """Place a C-contiguous array, which stays the caller's, and return its address."""
        address = (len(self.arrays) + 1) << 40
        self.arrays[name] = address, array.reshape(-1).view(np.uint8)
        self.read[name] = self.written[name] = 0
        return address

    def at(self, address: int, size: int, direction: dict[str, int]) -> Bytes:
        """Return `size` bytes at an address and count them."""
        for name, (first, data) in self.arrays.items():
            if first <= address and address + size <= first + len(data):
                if address % size:
                    raise IosimError(f"access of {size} bytes to {name} is not aligned")
                direction[name] += size
                return data[address - first : address - first + size]
        raise IosimError(f"access of {size} bytes outside every array, at {address:#x}")


class _Warp:
    """The exchange of 32 lanes: all bring a value, and each sees what all have brought."""

    def __init__(self, lanes: int) -> None:
        self.slots: list[list[Any]] = [[None] * lanes, [None] * lanes]
        self.made: list[Any] = [None, None]
        self.turn = 0
        self.work: Callable[[list[Any]], Any] = tuple
        self.barrier = threading.Barrier(lanes, action=self._act)

    def _act(self) -> None:
        self.made[self.turn] = self.work(self.slots[self.turn])
        self.turn ^= 1

    def exchange(self, lane: int, value: Any, work: Callable[[list[Any]], Any]) -> Any:
        turn = self.turn
        self.slots[turn][lane] = value
        self.work = work
        self.barrier.wait()
        return self.made[turn]


class Lanes:
    """The instructions of one block's lanes, by the names of `iosim.gpu.ptx`."""

    float32 = np.float32
    int32 = int64 = staticmethod(int)

    def __init__(self, memory: Memory, threads: int, shared_bytes: int) -> None:
        """Prepare a block of `threads` lanes with `shared_bytes` bytes of shared memory."""
        self._memory = memory
        self._me = threading.local()
        self._shared = np.full(shared_bytes, POISON, np.uint8)
        self._warps = [_Warp(WARP) for _ in range(threads // WARP)]
        self._groups = [_Warp(4 * WARP) for _ in range(threads // (4 * WARP))]
        self._barrier = threading.Barrier(threads)
        self._block, self._grid = 0, 0
        self.cuda = SimpleNamespace(local=SimpleNamespace(array=self._local_array))
        for dtype in ("float16", "bfloat16"):
            work = matrix_product(16, partial(unpacked, dtype))
            setattr(self, f"mma_{dtype}", self._mma(work))
            setattr(self, f"pack_{dtype}", partial(packed, dtype))
            setattr(self, f"unpack_{dtype}", partial(unpacked, dtype))
        self.mma_tf32 = self._mma(matrix_product(8, lambda x: self.as_float(x & ~0x1FFF)))

    def run(self, kernel: Callable[..., None], grid: int, arguments: tuple[Any, ...]) -> None:
        """Run a kernel block after block; raise what a lane raised first."""
        self._grid = grid
        for block in range(grid):
            self._block = block
            self._shared[:] = POISON
            failed: list[BaseException] = []
            lanes = [
                threading.Thread(target=self._lane, args=(i, kernel, arguments, failed))
                for i in range(len(self._warps) * WARP)
            ]
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.join()
            if failed:
                raise failed[0]

    def _lane(
        self, i: int, kernel: Callable[..., None], arguments: Any, failed: list[BaseException]
    ) -> None:
        self._me.thread = i
        self._me.warp, self._me.lane = self._warps[i // WARP], i % WARP
        self._me.copies = []
        try:
            with np.errstate(all="ignore"):
                kernel(*arguments)
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            failed.append(error)
            self._barrier.abort()
            for warp in (*self._warps, *self._groups):
                warp.barrier.abort()

    def _local_array(self, size: int, dtype: Any) -> NDArray[Any]:
        if dtype is np.float32:
            return np.full(size, np.nan, np.float32)
        return np.full(size, 0x7FFF7FFF, np.int64)

    def _mma(self, work: Callable[[list[Any]], Any]) -> Callable[..., Any]:
        def mma(*values: Any) -> tuple[Any, ...]:
            d = self._me.warp.exchange(self._me.lane, values, work)
            g, t = divmod(self._me.lane, 4)
            return d[g, 2 * t], d[g, 2 * t + 1], d[g + 8, 2 * t], d[g + 8, 2 * t + 1]

        return mma

    def device(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as it is."""
        return function

    def thread(self) -> int:
        """Return the number of this lane in the block."""
        return int(self._me.thread)

    def lane_number(self) -> int:
        """Return the number of this lane in its warp."""
        return int(self._me.lane)

    def block(self) -> int:
        """Return the number of the block."""
        return self._block

    def blocks(self) -> int:
        """Return the number of blocks in the grid."""
        return self._grid

    def shared_base(self) -> int:
        """Return where dynamic shared memory begins."""
        return 0

    def barrier(self) -> None:
        """Wait for all lanes of the block."""
        self._barrier.wait()

    def warp_barrier(self) -> None:
        """Wait for all lanes of the warp."""
        self._me.warp.exchange(self._me.lane, None, tuple)

    def from_lane_xor(self, value: Any, bits: int) -> Any:
        """Return the value of another lane of the warp."""
        return self._me.warp.exchange(self._me.lane, value, tuple)[self._me.lane ^ bits]

    def ldmatrix(self, at: int) -> tuple[int, ...]:
        """Return this lane's part of four 8 x 8 matrices."""
        return self._ldmatrix(at, False)

    def ldmatrix_transposed(self, at: int) -> tuple[int, ...]:
        """Return this lane's part of four 8 x 8 matrices, transposed."""
        return self._ldmatrix(at, True)

    def _ldmatrix(self, at: int, transposed: bool) -> tuple[int, ...]:
        work = matrices(self._shared, transposed)
        four = self._me.warp.exchange(self._me.lane, self._place(at, 16), work)
        return tuple(int(x) for x in four[:, self._me.lane])

    def _place(self, at: int, size: int) -> int:
        if not 0 <= at <= len(self._shared) - size or at % size:
            raise IosimError(f"access of {size} bytes outside shared memory, at {at}")
        return int(at)

    def fence_products(self) -> None:
        """Make copies visible to warpgroup products, which all memory is here."""

    def _described(self, descriptor: int, rows: int, columns: int, transposed: bool) -> Any:
        """Return the rows x columns words that a descriptor of 128-byte swizzled panels names.

        Rows are those of Q, K or (`transposed`) of V^T, whose words lie along the rows.
        """
        start, panels, eights = ((descriptor >> at & 0x3FFF) << 4 for at in (0, 16, 32))
        r, c = np.arange(rows)[:, None], np.arange(columns)[None, :]
        if transposed:
            at = start + r // 64 * panels + r % 64 * 2 + c // 8 * eights + c % 8 * 128
        else:
            at = start + r // 8 * eights + r % 8 * 128 + c * 2
        at ^= (at >> 7 & 7) << 4
        return self._shared.view(np.uint16)[at >> 1]

    def _group_product(self, values: Any, work: Callable[[list[Any]], Any], out: Any) -> None:
        """Exchange values within the warpgroup and write this lane's fragments of the result."""
        i = self._me.thread
        d = self._groups[i // 128].exchange(i % 128, values, work)
        row, t = i % 128 // WARP * 16 + i % WARP // 4, i % 4
        for x in range(len(out)):
            out[x] = d[row + x // 2 % 2 * 8, x // 4 * 8 + 2 * t + x % 2]

    def warpgroup_scores(
        self, n: int, k_steps: int, dtype: str, q_panel: int, k_panel: int
    ) -> Callable[..., None]:
        """Return product(s, q, k) as `iosim.gpu.ptx` does."""

        def work(slots: list[Any]) -> Any:
            q, k = slots[0]
            s = np.zeros((64, n), np.float32)
            for step in range(k_steps):
                a, b = (
                    to_float(
                        self._described(
                            x + ((step % 4 * 32 + step // 4 * panel) >> 4), rows, 16, False
                        ),
                        dtype,
                    )
                    for x, rows, panel in ((q, 64, q_panel), (k, n, k_panel))
                )
                s += a @ b.T
            return s

        return lambda s, q, k: self._group_product((q, k), work, s)

    def warpgroup_output(self, n: int, k_steps: int, dtype: str) -> Callable[..., None]:
        """Return product(o, p, v) as `iosim.gpu.ptx` does."""

        def work(slots: list[Any]) -> Any:
            o, p = np.zeros((64, n), np.float32), np.zeros((64, 16 * k_steps), np.float32)
            for i, (mine, words, _) in enumerate(slots):
                row, t = i // WARP * 16 + i % WARP // 4, i % 4
                for x, value in enumerate(mine):
                    o[row + x // 2 % 2 * 8, x // 4 * 8 + 2 * t + x % 2] = value
                for x, word in enumerate(words):
                    column = x // 2 * 8 + 2 * t
                    p[row + x % 2 * 8, column : column + 2] = to_float(halves([word]), dtype)
            v = slots[0][2]
            for step in range(k_steps):
                b = self._described(v + (step * 16 * 128 >> 4), n, 16, True)
                o += p[:, 16 * step : 16 * step + 16] @ to_float(b, dtype).T
            return o

        def product(o: Any, p: Any, v: int) -> None:
            self._group_product((o.copy(), p.copy(), v), work, o)

        return product

    def copy_async(self, to: int, source: int, size: int) -> None:
        """Copy 16 bytes past L1, or write zeros; it happens when somebody waits for it."""
        data = np.zeros(16, np.uint8)
        if size:
            data = self._memory.at(source, 16, self._memory.read).copy()
        self._me.copies.append((self._place(to, 16), data))

    def commit_copies(self) -> None:
        """Close a group of copies; all groups are waited for together."""

    def wait_for_copies(self) -> None:
        """Let this lane's copies happen."""
        for to, data in self._me.copies:
            self._shared[to : to + 16] = data
        self._me.copies.clear()

    def load_shared_int(self, at: int) -> int:
        """Return 4 bytes of shared memory."""
        at = self._place(at, 4)
        return int(self._shared[at : at + 4].view(np.uint32)[0])

    def load_shared_float(self, at: int) -> Any:
        """Return a float32 of shared memory."""
        return self.as_float(self.load_shared_int(at))

    def load_shared_16(self, at: int) -> tuple[int, ...]:
        """Return 16 bytes of shared memory as four integers."""
        at = self._place(at, 16)
        return tuple(int(x) for x in self._shared[at : at + 16].view(np.uint32))

    def store_shared_int(self, at: int, value: int) -> None:
        """Write 4 bytes of shared memory."""
        at = self._place(at, 4)
        self._shared[at : at + 4].view(np.uint32)[0] = value

    def store_shared_float(self, at: int, value: Any) -> None:
        """Write a float32 to shared memory."""
        self.store_shared_int(at, self.as_int(value))

    def store_shared_2(self, at: int, value: int) -> None:
        """Write 2 bytes of shared memory."""
        at = self._place(at, 2)
        self._shared[at : at + 2].view(np.uint16)[0] = value

    def _load(self, address: int, kind: Any, words: int = 1) -> Any:
        size = np.dtype(kind).itemsize * words
        return self._memory.at(address, size, self._memory.read).view(kind)

    def _store(self, address: int, kind: Any, *values: Any) -> None:
        size = np.dtype(kind).itemsize * len(values)
        self._memory.at(address, size, self._memory.written).view(kind)[:] = values

    def load_float(self, address: int) -> Any:
        """Return a float32 of global memory."""
        return np.float32(self._load(address, np.float32)[0])

    def load_4(self, address: int) -> int:
        """Return 4 bytes of global memory."""
        return int(self._load(address, np.uint32)[0])

    def load_2(self, address: int) -> int:
        """Return 2 bytes of global memory."""
        return int(self._load(address, np.uint16)[0])

    def load_16(self, address: int) -> tuple[int, ...]:
        """Return 16 bytes of global memory as four integers."""
        return tuple(int(x) for x in self._load(address, np.uint32, 4))

    def store_float(self, address: int, value: Any) -> None:
        """Write a float32 to global memory."""
        self._store(address, np.float32, value)

    def store_4(self, address: int, value: int) -> None:
        """Write 4 bytes to global memory."""
        self._store(address, np.uint32, value)

    def store_2(self, address: int, value: int) -> None:
        """Write 2 bytes to global memory."""
        self._store(address, np.uint16, value)

    def store_16(self, address: int, *values: int) -> None:
        """Write four integers, 16 bytes, to global memory."""
        self._store(address, np.uint32, *values)

    @staticmethod
    def as_float(x: int) -> Any:
        """Return the float32 of 32 bits."""
        return np.uint32(int(x) & 0xFFFFFFFF).view(np.float32)

    @staticmethod
    def as_int(x: Any) -> int:
        """Return the 32 bits of a float32."""
        return int(np.float32(x).view(np.uint32))

    @staticmethod
    def exp2(x: Any) -> Any:
        """Return 2 to the x."""
        return np.exp2(np.float32(x))

    @staticmethod
    def maximum(a: Any, b: Any) -> Any:
        """Return the larger one, or the other one beside a NaN."""
        return np.fmax(np.float32(a), np.float32(b))

    @staticmethod
    def product(a: Any, b: Any) -> Any:
        """Return a rounded product."""
        return np.float32(a) * np.float32(b)

    @staticmethod
    def logarithm(x: Any) -> Any:
        """Return the natural logarithm."""
        return np.log(np.float32(x))
