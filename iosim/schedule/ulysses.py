"""All-to-all (Ulysses) sequence parallelism: from shards of rows to whole heads, and back."""

from iosim.schedule.attention import problem
from iosim.schedule.dropout import save_random_state
from iosim.schedule.flash2 import key_loop, query_loop
from iosim.schedule.ranks import Others, Ranks, even_shards, shards
from iosim.schedule.registry import schedule
from iosim.schedule.tree import For, Remark, Schedule, exchange
from iosim.shape import AttentionShape


@schedule("ulysses", source="Jacobs et al. 2023, DeepSpeed Ulysses, arXiv 2309.14509")
def ulysses(shape: AttentionShape, br: int, bc: int, *, ranks: int = 1) -> Schedule:
    """Ulysses: an all-to-all gives each rank whole heads, flash2 runs, another takes O back.

    Shards of ceil(n / p) rows, tiles of `br` queries and `bc` keys. A rank receives the rows that
    it lacks of Q, K and V of its heads and sends (p - 1) / p of the O of its heads. The ranks must
    divide the heads of keys and values. LSE stays where its head was computed.
    """
    p = problem(shape, br, bc)
    rank = even_shards(p.kv_head, ranks, "heads of keys and values", "rank")
    rows = shards(p.query, ranks, "queries", "shard")
    columns = shards(p.key, ranks, "keys", "shard_k")
    Q, K, V, O = p.Q, p.K, p.V, p.O
    gather = "receive rows of Q, K and V of its heads from rank s"
    scatter = "send to rank s its rows of O of these heads"
    attend = query_loop(p, (key_loop(p, p.key), Remark("end for j")))[:-1]  # it is not all yet
    others_q, others_k = Others("rank", "shard"), Others("rank", "shard_k")
    body = (
        Remark("rank r holds shard r of Q, K, V and O, and attends with the r-th share of heads"),
        For(rank, save_random_state(p, (
            *(() if ranks == 1 else (
                For(rows, exchange("receive", gather, Q), relation=others_q),
                For(columns, exchange("receive", gather, K, V), relation=others_k),
            )),
            For(p.batch, (
                For(p.kv_head.within(rank), (
                    For(p.group, attend, parallel=True),
                ), parallel=True, line="for each of its heads"),
            ), parallel=True),
            *(() if ranks == 1 else (
                For(rows, exchange("send", scatter, O), relation=others_q),
            )),
        )), parallel=True, line="on each rank r, at the same time"),
        Remark("return O and LSE"),
    )  # fmt: skip
    mine, theirs = p.query.cut(rows.block), p.key.cut(columns.block)
    holds = {"Q": mine, "O": mine, "K": theirs, "V": theirs, "LSE": p.kv_head.cut(rank.block)}
    tiles = {"br": br, "bc": bc, "ranks": ranks}
    return Schedule("ulysses", shape, body, p.mask, tiles, Ranks(rank, holds))
