"""K and V in pages of slow memory, which a table says where to find."""

from dataclasses import replace

from iosim.schedule.attention import Problem, at_least_one
from iosim.schedule.flash2 import key_loop
from iosim.schedule.tree import Dim, For, Node, Remark, Tensor, free, load

# Entries of page tables are int32 in vLLM and in FlashAttention.
TABLE_DTYPE = "int32"


def over_keys(p: Problem, page_size: int | None, split: Dim | None = None) -> tuple[Node, ...]:
    """Return the loop over K/V tiles within the blocks of `split` (None: over all keys).

    With a page size (in rows) it lies within a loop over pages, which loads the page's entry of the
    page table first; a tile does not reach from one page into the next. Raises IosimError for a
    page size below 1.
    """
    if page_size is None:
        key = p.key if split is None else p.key.within(split)
        return (key_loop(p, key), Remark("end for j"))
    pages = replace(p.key.cut(at_least_one("page_size", page_size), "T_p"), index="page")
    pages = replace(pages, parent=split)
    table = Tensor("page_table", (p.batch, pages.numbers()), TABLE_DTYPE, "input")
    paged = replace(p, K=replace(p.K, table=table), V=replace(p.V, table=table))
    body: tuple[Node, ...] = (
        *load("load the entry of the page table", table),
        key_loop(paged, p.key.within(pages)),
        Remark("end for j"),
        *free(table),
    )
    return (For(pages, body, relation=p.mask, line="for each page do"), Remark("end for pages"))
