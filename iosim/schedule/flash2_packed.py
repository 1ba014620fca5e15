"""FlashAttention-2 with the query heads of a group in one tile, over a cache that may be paged."""

from iosim.schedule.attention import problem
from iosim.schedule.dropout import save_random_state
from iosim.schedule.flash2 import query_loop
from iosim.schedule.paging import over_keys
from iosim.schedule.registry import schedule
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape


@schedule(
    "flash2_packed",
    source="Dao 2023, arXiv 2307.08691, Algorithm 1; heads that share keys: Ainslie et al. 2023, "
    "arXiv 2305.13245; pages: Kwon et al. 2023, arXiv 2309.06180",
    like="flash2",
)
def flash2_packed(
    shape: AttentionShape, br: int, bc: int, pack: int | None = None, page_size: int | None = None
) -> Schedule:
    """FlashAttention-2 with query heads that share K and V in one tile, K and V perhaps in pages.

    A tile of Q has `br` rows of each of `pack` heads of a group (default: all), so that K and V are
    read once for all of them: n_q d g + T_g T_r n_k (d + d_v) words read for each key-value head.
    With `page_size` rows a page, T_g T_r entries of the page table are read for each page.
    """
    pack = shape.group if pack is None else pack
    p = problem(shape, br, bc, pack)
    tiles = {"br": br, "bc": bc, "pack": pack}
    tiles |= {} if page_size is None else {"page_size": page_size}
    body = p.per_head(query_loop(p, over_keys(p, page_size)))
    return Schedule("flash2_packed", shape, save_random_state(p, body), p.mask, tiles)
