"""Trace files: what is written is read again, what is wrong is named."""

import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from iosim.cache import Block, formats, opening, read_trace, simulate, write_trace
from iosim.errors import IosimError

accesses = st.lists(st.tuples(st.integers(0, 2**58 - 1), st.booleans()), min_size=1, max_size=30)


def read(text, name="trace.txt", tmp_path=None, **options):
    """The (line, write) pairs of a text."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = []
    for block in read_trace(path, **options):
        writes = np.zeros(block.lines.size) if block.writes is None else block.writes
        found += zip(
            (block.lines.view(np.uint64)).tolist(), writes.astype(bool).tolist(), strict=True
        )
    return found


@pytest.mark.parametrize("form", ["ids", "din", "lackey", "csv"])
@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_written_traces_read_the_same(tmp_path_factory, form, packing):
    folder = tmp_path_factory.mktemp("traces")

    @given(
        trace=accesses,
        line_bytes=st.sampled_from([1, 8, 64]),
        cut=st.integers(1, 9),
        named=st.booleans(),
        chunk=st.integers(1, 60),
    )
    def check(trace, line_bytes, cut, named, chunk):
        lines = np.array([line for line, _ in trace], dtype=np.int64)
        writes = np.array([write for _, write in trace], dtype=np.uint8)
        path = folder / f"trace{packing}"
        blocks = [Block(lines[k : k + cut], writes[k : k + cut]) for k in range(0, len(trace), cut)]
        assert write_trace(path, blocks, form, line_bytes) == len(trace)
        unit = 1 if form == "ids" else line_bytes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(opening, "CHUNK", chunk)
            found = list(read_trace(path, form if named else None, line_bytes=unit))
        read_writes = [
            flag
            for block in found
            for flag in ([0] * block.lines.size if block.writes is None else block.writes.tolist())
        ]
        assert [line for block in found for line in block.lines.tolist()] == lines.tolist()
        assert read_writes == ([0] * len(trace) if form == "ids" else writes.tolist())

    check()


def test_formats_as_other_tools_write_them(tmp_path):
    def of(*args, **options):
        return read(*args, tmp_path=tmp_path, **options)

    assert of("# ids\n\n 12 \r\n0xff\n18446744073709551615") == [
        (12, False),
        (255, False),
        (2**64 - 1, False),
    ]
    assert of("0 1f\n1 0x20 4\n2 400\n", form="din") == [(31, False), (32, True)]
    assert of("2 400\n", instructions=True) == [(0x400, False)]
    lackey = "==7== Lackey\nI  0023,3\n L 10,4\n S 18,4\n M 0421c7f0,4\n"
    loads = [(16, False), (24, True), (0x421C7F0, False), (0x421C7F0, True)]
    assert of(lackey, ignore_sizes=True) == loads
    assert of(" L 1e,4\n", line_bytes=16) == [(1, False), (2, False)]
    table = "time, Obj_ID ,size,OP\n0.5,7,1,GET\n0.6,0x9,1,set\n"
    assert of(table) == [(7, False), (9, True)]
    assert of(" L 1,1\n", "trace.txt", form="lackey") == [(1, False)]


@pytest.mark.parametrize(
    ("text", "form", "line", "shown"),
    [
        ("1\n2\nthree\n", "ids", 3, "three"),
        ("1\n-2\n", "ids", 2, "-2"),
        ("18446744073709551616\n", "ids", 1, "18446744073709551616"),
        ("0 10\n7 20\n", "din", 2, "7 20"),
        ("0 xyz\n", "din", 1, "0 xyz"),
        (" L 10,4\n L 10\n", "lackey", 2, "L 10"),
        (" Q 10,4\n", "lackey", 1, "Q 10,4"),
        ("address,op\n1,r\n\n2,x\n", "csv", 4, "2,x"),
        ("address,size\n1\n", "csv", 2, "1"),
        ("a,b\n1,2\n", "csv", 1, "a,b"),
        ("1\n\xff" + "9" * 200 + "\n", "ids", 2, "9" * 60),
    ],
)
def test_a_malformed_line_is_named(tmp_path, text, form, line, shown):
    with pytest.raises(IosimError) as caught:
        read(text, "bad.txt", tmp_path, form=form)
    message = str(caught.value)
    assert str(tmp_path / "bad.txt") in message
    assert f"line {line}:" in message
    assert shown in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "line", [b"\x00\x1b[31m\xff\xfe", b"\x07" * 500, b"\xe2\x82" * 41, b"it's"]
)
def test_a_line_of_a_binary_file_is_shown_escaped_and_cut(tmp_path, line):
    with pytest.raises(IosimError) as caught:
        read(b"1\n" + line + b"\n", "bad.txt", tmp_path, form="ids")
    message = str(caught.value)
    assert message.isascii()
    assert message.isprintable()
    shown = message.partition("line 2: ")[2].partition(" is malformed")[0]
    assert len(shown) <= 80
    assert shown[0] == shown[-1]
    assert shown.strip("'\"").removesuffix("...") in repr(line)
    assert ("..." in shown) == (len(repr(line)) - 1 > 80)


def test_line_numbers_count_over_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "CHUNK", 10)
    with pytest.raises(IosimError, match="line 51: 'oops'"):
        read("123\n" * 50 + "oops\n", tmp_path=tmp_path)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "==1== nothing\n"])
def test_an_empty_trace(tmp_path, text):
    with pytest.raises(IosimError, match="is empty"):
        read(text, tmp_path=tmp_path, form="lackey")


@pytest.mark.parametrize("cut", [3, 12, -1, -9])
def test_truncated_files(tmp_path, cut):
    text = b"".join(b"%d\n" % (k * k) for k in range(1000))
    for packed in (gzip.compress(text), zstandard.compress(text)):
        whole = read(packed, tmp_path=tmp_path)
        assert len(whole) == 1000
        if cut == 3:
            continue
        with pytest.raises(IosimError, match="ends before its compressed data does"):
            read(packed[:cut], tmp_path=tmp_path)


def test_damaged_files(tmp_path):
    text = b"".join(b"%d\n" % (k * k) for k in range(1000))
    # Without a checksum, zstd cannot tell all damage.
    checked = zstandard.ZstdCompressor(write_checksum=True)
    for packed in (gzip.compress(text), checked.compress(text)):
        damaged = packed[:30] + bytes(255 - byte for byte in packed[30:60]) + packed[60:]
        with pytest.raises(IosimError, match=r"is damaged|is malformed|ends before"):
            read(damaged, tmp_path=tmp_path)


def test_several_frames_are_one_trace(tmp_path):
    for packing in (gzip.compress, zstandard.compress):
        assert read(packing(b"1\n2") + packing(b"3\n4\n"), tmp_path=tmp_path) == [
            (1, False),
            (23, False),
            (4, False),
        ]


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(IosimError, match="cannot be read"):
            list(read_trace(path))
    with pytest.raises(IosimError, match="unknown trace format 'dinn'; did you mean 'din'"):
        list(read_trace(tmp_path, "dinn"))


def test_no_endless_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "CHUNK", 100)
    monkeypatch.setattr(opening, "CHUNK", 100)
    with pytest.raises(IosimError, match="line of more than 100 bytes"):
        read(b"1" * 500, tmp_path=tmp_path)


def test_standard_input(monkeypatch):
    class Fake:
        buffer = io.BufferedReader(io.BytesIO(gzip.compress(b"1\n2\n1\n")))

    monkeypatch.setattr(sys, "stdin", Fake)
    (found,) = simulate(read_trace("-"), ["lru"], [2])
    assert (found.accesses, found.misses) == (3, 2)


def test_a_failed_write_leaves_nothing(tmp_path):
    def failing():
        yield Block(np.array([1]))
        raise IosimError("no more")

    with pytest.raises(IosimError, match="no more"):
        write_trace(tmp_path / "trace.gz", failing(), "din")
    assert list(Path(tmp_path).iterdir()) == []
