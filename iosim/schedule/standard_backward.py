"""The backward pass of standard attention, from a stored P (FA1, Algorithm 3)."""

from iosim.schedule.attention_backward import backward_problem
from iosim.schedule.dropout_backward import dropout_pass, probabilities_of_values
from iosim.schedule.registry import schedule
from iosim.schedule.tree import Compute, For, Node, Schedule, free, load, new, store
from iosim.shape import AttentionShape


@schedule(
    "standard_backward",
    source="Dao et al. 2022, arXiv 2205.14135, Algorithm 3",
    forward="standard",
)
def standard_backward(shape: AttentionShape) -> Schedule:
    """The standard backward pass: dV, dP, dS, dQ and dK in five passes; P comes from the forward.

    Each operand of a matmul moves once: it holds dV whole (then V, K, dK) and one row of the
    others. A mask skips nothing: P is zero where it hides. In all 7 n_q n_k + 2 (n_q + n_k) (d +
    d_v) words a head, 7 N^2 + 8 N d for n_q = n_k = N and d_v = d.
    """
    p = backward_problem(shape, br=1)
    Q, K, V, P, dO = p.Q, p.K, p.V, p.P, p.dO
    dP, dS, dQ, dK, dV = p.dP, p.dS, p.dQ, p.dK, p.dV
    P_d = probabilities_of_values(p)
    value = f"load {P_d.name}, dO; compute dV = {P_d.name}^T dO; write dV"
    probability = "load dO, V; compute dP = dO V^T; write dP"
    softmax = "read P, dP; compute dS_ij = P_ij (dP_ij - sum_l P_il dP_il); write dS"
    query = "load dS, K; compute dQ = dS K, scaled; write dQ"
    key = "load dS, Q; compute dK = dS^T Q, scaled; write dK"

    def rows(line: str, *body: Node) -> For:
        return p.per_query_head(For(p.query, body, line=line))

    body: tuple[Node, ...] = (
        *new(dV),
        Compute("clear", (dV,), (), value),
        rows(
            value,
            *load(value, P_d, dO),
            Compute("value_gradient", (dV,), (P_d, dO, dV), value),
            *free(P_d, dO),
        ),
        *store(value, dV),
        *free(dV),
        *load(probability, V),
        rows(
            probability,
            *load(probability, dO),
            *new(dP),
            Compute("probability_gradient", (dP,), (dO, V), probability),
            *store(probability, dP),
            *free(dO, dP),
        ),
        *free(V),
        *dropout_pass(p),
        rows(
            softmax,
            *load(softmax, P, dP),
            *new(dS),
            Compute("softmax_gradient", (dS,), (P, dP), softmax),
            *store(softmax, dS),
            *free(P, dP, dS),
        ),
        *load(query, K),
        rows(
            query,
            *load(query, dS),
            *new(dQ),
            Compute("clear", (dQ,), (), query),
            Compute("query_gradient", (dQ,), (dS, K, dQ), query),
            *store(query, dQ),
            *free(dS, dQ),
        ),
        *free(K),
        *new(dK),
        Compute("clear", (dK,), (), key),
        rows(
            key,
            *load(key, dS, Q),
            Compute("key_gradient", (dK,), (dS, Q, dK), key),
            *free(dS, Q),
        ),
        *store(key, dK),
        *free(dK),
    )
    return Schedule("standard_backward", shape, p.per_kv_head(body), p.mask)
