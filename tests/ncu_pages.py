"""Pages of Nsight Compute written by hand, and the recorded cases beside them (no tests in it).

They have the form that ncu's documentation and its CSV output have: a row of units under the header
of the raw page, a unit in each row of the details page, commas between thousands, and a program's
own lines before the header.
"""

import csv
import io
from pathlib import Path
from typing import Any

from iosim.audit.counters import METRICS
from iosim.device.case import read_document
from iosim.device.profile import profile

DATA = Path(__file__).parents[1] / "docs" / "data"
FILE = DATA / "h200_torch_attention.json"
RECORDED = read_document(FILE)["cases"]
H200 = profile("H200")

FLASH = (
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<(int)64, "
    "(int)128, (int)128, (int)4, (bool)0, (bool)0, cutlass::half_t, "
    "pytorch_flash::Flash_kernel_traits<(int)64, (int)128, (int)128, (int)4, cutlass::half_t>>, "
    "(bool)0, (bool)1, (bool)0, (bool)0, (bool)1, (bool)1, (bool)0, (bool)0>"
    "(pytorch_flash::Flash_fwd_params)"
)
OTHER = "vectorized_add(float *, float *, int)"
COLUMNS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
           "Block Size", "Grid Size", "Device", "CC")  # fmt: skip
UNITS = {
    "dram__bytes_read.sum": "Mbyte",
    "dram__bytes_write.sum": "Kbyte",
    "gpu__time_duration.sum": "us",
    "l1tex__m_l1tex2xbar_write_bytes.sum": "byte",
    "l1tex__m_xbar2l1tex_read_bytes.sum": "Gbyte",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": "sector",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": "sector",
    "launch__registers_per_thread": "register/thread",
    "launch__shared_mem_per_block": "Kbyte/block",
    "lts__t_sectors_srcunit_tex_op_read.sum": "sector",
    "lts__t_sectors_srcunit_tex_op_red.sum": "sector",
    "lts__t_sectors_srcunit_tex_op_write.sum": "sector",
}
# Case 1 of the recording (causal, N 8192, d 64, 8 heads), and a kernel that nobody described.
VALUES = {
    FLASH: ("25.267456", "3,024.384", "352.16", "66,576,384", "0.553656832", "8,540,416",
            "1,810,176", "255", "50.176", "17,280,812", "0", "2,080,512"),
    OTHER: ("33.6", "n/a", "12.8", "33,554,432", "0.067108864", "0", "0", "16", "1.024",
            "2,097,152", "0", "1,048,576"),
}  # fmt: skip
LAUNCHES = {FLASH: ("(128, 1, 1)", "(64, 1, 8)"), OTHER: ("(256, 1, 1)", "(4096, 1, 1)")}


def text_of(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue()


def head(i: int, name: str, capability: str = "9.0") -> list[str]:
    block, grid = LAUNCHES[name]
    return [str(i), "4711", "python3", "127.0.0.1", name, "1", "7", block, grid, "0", capability]


def raw_page(*names: str, without: tuple[str, ...] = (), capability: str = "9.0", **units: str):
    metrics = [metric for metric in UNITS if metric not in without]
    rows = [[*COLUMNS, *metrics], ["" for _ in COLUMNS] + [UNITS[metric] for metric in metrics]]
    for i, name in enumerate(names):
        given = dict(zip(UNITS, VALUES[name], strict=True))
        rows.append([*head(i, name, capability), *(given[metric] for metric in metrics)])
    return (
        "==PROF== Connected to process 4711\nhello from the program\n"
        + text_of(rows)
        + "==PROF== Disconnected from process 4711\n"
    )


def details_page(*names: str) -> str:
    rows = [[*COLUMNS, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]]
    for i, name in enumerate(names):
        for (metric, unit), value in zip(UNITS.items(), VALUES[name], strict=True):
            rows.append([*head(i, name), "Command line profiler metrics", metric, unit, value])
    return "==PROF== Connected\n" + text_of(rows)


# --- whole names, as older versions of ncu print them, and rows of recorded kernels ---------------

BASE_UNITS = {
    metric: "ns" if metric == "gpu__time_duration.sum" else unit.lstrip("MKG")
    for metric, unit in UNITS.items()
}
SHORT = {metric: name for name, (metric, _) in METRICS.items()}
TEMPLATE = (
    "void pytorch_flash::{kernel}<pytorch_flash::Flash_{kind}_kernel_traits<(int){width}, "
    "(int){br}, (int){bc}, {between}, (bool)0, (bool)0, cutlass::half_t, "
    "pytorch_flash::Flash_kernel_traits<(int){width}, (int){br}, (int){bc}, (int)4, "
    "cutlass::half_t>>{flags}>(pytorch_flash::Flash_{kind}_params)"
)


def flash_name(kernel: str, width: int, br: int, bc: int, *flags: int, backward: bool = False):
    """The whole name of a kernel of FlashAttention-2 with its flags, as torch has it."""
    return TEMPLATE.format(
        kernel=kernel, kind="bwd" if backward else "fwd", width=width, br=br, bc=bc,
        between="(int)8, (int)4, (int)4, (int)4" if backward else "(int)4",
        flags="".join(f", (bool){flag}" for flag in flags),
    )  # fmt: skip


def row_of(
    name: str, dims: tuple[int, int, int], record: dict[str, Any], **cells: str
) -> tuple[list[str], list[str]]:
    """A launch for `page_of_rows`: its first cells, and its metrics in base units.

    They are those of a recorded kernel, but for the `cells` given by the recording's names.
    """
    values = []
    for metric in BASE_UNITS:
        name_of = SHORT.get(metric) or {
            "gpu__time_duration.sum": "time_ns",
            "launch__registers_per_thread": "registers",
            "launch__shared_mem_per_block": "smem_bytes",
        }[metric]  # fmt: skip
        size = METRICS[name_of][1] if name_of in METRICS else 1
        values.append(cells.get(name_of, f"{record.get(name_of, 0) // size:,}"))
    block = f"({record.get('block', 128)}, 1, 1)"
    return [name, "1", "7", block, str(dims), "0"], values


def page_of_rows(*rows: tuple[list[str], list[str]], capability: str = "9.0") -> str:
    """A raw page in base units, with what ncu prints before it."""
    table = [[*COLUMNS, *BASE_UNITS], ["" for _ in COLUMNS] + list(BASE_UNITS.values())]
    for i, (first, values) in enumerate(rows):
        table.append([str(i), "4711", "python3", "127.0.0.1", *first, capability, *values])
    return "==PROF== Connected to process 4711\n" + text_of(table)
