"""Compiled parsers of trace text: many lines at a time into arrays.

Every parser takes `text` (uint8, whole lines, each with its newline) and fills `addresses`
(uint64), `sizes` (int64, bytes) and `writes` (uint8).  It returns (accesses, -1), or where a
malformed line begins in the second place.
"""

from typing import Any, Final

import numpy as np

from iosim.cache.jit import compiled

NEWLINE: Final = 10
SPACE: Final = 32
COMMA: Final = 44
HASH: Final = 35
EQUALS: Final = 61
MOST: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


@compiled
def _is_blank(byte: int) -> bool:
    return byte == SPACE or 9 <= byte <= 13


@compiled
def _digit(byte: int) -> int:
    """Value of a hexadecimal digit, 99 for any other byte."""
    if 48 <= byte <= 57:
        return byte - 48
    if 97 <= byte <= 102:
        return byte - 87
    if 65 <= byte <= 70:
        return byte - 55
    return 99


@compiled
def _number(text: Any, start: int, stop: int, base: int) -> tuple[Any, bool]:
    """Read the digits in [start, stop) as (uint64, valid); 0x before them means base 16."""
    if stop - start > 2 and text[start] == 48 and (text[start + 1] | 32) == 120:
        base = 16
        start += 2
    value = np.uint64(0)
    if start >= stop:
        return value, False
    by = np.uint64(base)
    for place in range(start, stop):
        digit = _digit(int(text[place]))
        if digit >= base:
            return value, False
        add = np.uint64(digit)
        # 15 digits never reach 64 bits, and a division at each digit would take most of the time.
        if place - start >= 15 and value > (MOST - add) // by:
            return value, False
        value = np.uint64(value * by + add)
    return value, True


@compiled
def _trimmed(text: Any, start: int, stop: int) -> tuple[int, int]:
    """Narrow [start, stop) by the blanks at both ends."""
    while start < stop and _is_blank(int(text[start])):
        start += 1
    while stop > start and _is_blank(int(text[stop - 1])):
        stop -= 1
    return start, stop


@compiled
def _end_of_line(text: Any, start: int) -> int:
    while text[start] != NEWLINE:
        start += 1
    return start


@compiled
def _end_of_word(text: Any, start: int, stop: int) -> int:
    while start < stop and not _is_blank(int(text[start])):
        start += 1
    return start


@compiled
def parse_ids(
    text: Any, _columns: Any, _instructions: bool, addresses: Any, sizes: Any, writes: Any
) -> tuple[int, int]:
    """One number a line, decimal or 0x hexadecimal: every access is a read of one unit."""
    count = 0
    line = 0
    while line < text.size:
        end = _end_of_line(text, line)
        start, stop = _trimmed(text, line, end)
        if start < stop and text[start] != HASH:
            value, valid = _number(text, start, stop, 10)
            if not valid:
                return count, line
            addresses[count] = value
            sizes[count] = 1
            writes[count] = 0
            count += 1
        line = end + 1
    return count, -1


@compiled
def parse_din(
    text: Any, _columns: Any, instructions: bool, addresses: Any, sizes: Any, writes: Any
) -> tuple[int, int]:
    """Dinero: label (0 read, 1 write, 2 instruction), hexadecimal address; the rest is ignored."""
    count = 0
    line = 0
    while line < text.size:
        end = _end_of_line(text, line)
        start, stop = _trimmed(text, line, end)
        if start < stop and text[start] != HASH:
            label = int(text[start]) - 48
            if label < 0 or label > 2 or start + 1 == stop or not _is_blank(int(text[start + 1])):
                return count, line
            start, stop = _trimmed(text, start + 1, stop)
            value, valid = _number(text, start, _end_of_word(text, start, stop), 16)
            if not valid:
                return count, line
            if label < 2 or instructions:
                addresses[count] = value
                sizes[count] = 1
                writes[count] = label == 1
                count += 1
        line = end + 1
    return count, -1


@compiled
def parse_lackey(
    text: Any, _columns: Any, instructions: bool, addresses: Any, sizes: Any, writes: Any
) -> tuple[int, int]:
    """Valgrind's lackey: I, L, S or M, hexadecimal address, comma, size in bytes.

    M is a load and then a store.  Lines that begin with == are Valgrind's own messages.
    """
    count = 0
    line = 0
    while line < text.size:
        end = _end_of_line(text, line)
        start, stop = _trimmed(text, line, end)
        message = start + 1 < stop and text[start] == EQUALS and text[start + 1] == EQUALS
        if start < stop and text[start] != HASH and not message:
            kind = int(text[start])
            known = kind == 73 or kind == 76 or kind == 83 or kind == 77  # I, L, S, M
            if not known or start + 1 == stop or not _is_blank(int(text[start + 1])):
                return count, line
            start, stop = _trimmed(text, start + 1, stop)
            comma = start
            while comma < stop and text[comma] != COMMA:
                comma += 1
            value, valid = _number(text, start, comma, 16)
            size, valid_size = _number(text, comma + 1, stop, 10)
            if not valid or not valid_size or size > np.uint64(1 << 40):
                return count, line
            if kind != 73 or instructions:
                for write in range(2):
                    if write == (kind == 83) or kind == 77:
                        addresses[count] = value
                        sizes[count] = size
                        writes[count] = write
                        count += 1
        line = end + 1
    return count, -1


@compiled
def parse_csv(
    text: Any, columns: Any, _instructions: bool, addresses: Any, sizes: Any, writes: Any
) -> tuple[int, int]:
    """Comma-separated fields; `columns` are the places of address, size and op, -1 for none.

    An op that begins with r, l, g or 0 (read, load, get) is a read, one with w, s, p or 1
    (write, store, set, put) a write.
    """
    count = 0
    line = 0
    while line < text.size:
        end = _end_of_line(text, line)
        start, stop = _trimmed(text, line, end)
        if start < stop and text[start] != HASH:
            sizes[count] = 1
            writes[count] = 0
            found = False
            column = 0
            while start <= stop:
                comma = start
                while comma < stop and text[comma] != COMMA:
                    comma += 1
                first, last = _trimmed(text, start, comma)
                if column == columns[0]:
                    value, found = _number(text, first, last, 10)
                    addresses[count] = value
                    if not found:
                        return count, line
                elif column == columns[1]:
                    size, valid = _number(text, first, last, 10)
                    if not valid or size > np.uint64(1 << 40):
                        return count, line
                    sizes[count] = size
                elif column == columns[2]:
                    letter = int(text[first]) | 32 if first < last else 0
                    is_write = letter == 119 or letter == 115 or letter == 112 or letter == 49
                    is_read = letter == 114 or letter == 108 or letter == 103 or letter == 48
                    if not is_write and not is_read:
                        return count, line
                    writes[count] = is_write
                column += 1
                start = comma + 1
            if not found or column <= max(columns[1], columns[2]):
                return count, line
            count += 1
        line = end + 1
    return count, -1
