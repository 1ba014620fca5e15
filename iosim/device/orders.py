"""Launch orders: the same tiles handed out in another order, and what that does to HBM."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from iosim.device.hbm import simulate
from iosim.device.launch import Launch
from iosim.device.profile import Profile


@dataclass(frozen=True)
class OrderPrediction:
    """Bytes between HBM and L2 for one order of a grid's tiles.

    `heads` says whether the tiles of a head follow each other or the heads of a tile do; `tiles`
    and `keys` are ascending or descending. `usual` is the order that the launch has.
    """

    heads: str
    tiles: str
    keys: str
    dram_read: int
    dram_write_min: int
    dram_write_max: int
    compulsory_read: int
    usual: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the record: bytes, and how often each input comes from HBM."""
        return {
            "heads": self.heads,
            "tiles": self.tiles,
            "keys": self.keys,
            "dram_read": self.dram_read,
            "dram_write_min": self.dram_write_min,
            "dram_write_max": self.dram_write_max,
            "compulsory_read": self.compulsory_read,
            "times_compulsory": self.dram_read / self.compulsory_read,
            "usual": self.usual,
        }


def orders(launch: Launch, profile: Profile) -> Iterator[OrderPrediction]:
    """Yield each order of a launch with the bytes that it moves between HBM and L2.

    With one head, both orders of heads are one. The order that the launch has is marked.
    """
    by_head = ("blocks-first", "heads-first") if launch.heads > 1 else ("blocks-first",)
    for heads in by_head:
        for tiles in (False, True):
            for keys in (False, True):
                other = replace(launch, order=heads, tiles_descending=tiles, stream_descending=keys)
                moved = simulate(other, profile)
                yield OrderPrediction(
                    heads,
                    _direction(tiles),
                    _direction(keys),
                    moved.dram_read,
                    moved.dram_write_min,
                    moved.dram_write_max,
                    launch.compulsory_read_bytes,
                    other == launch,
                )


def _direction(descending: bool) -> str:
    return "descending" if descending else "ascending"
