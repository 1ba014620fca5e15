"""Slow, obvious references for the cache engines: lists, dicts and the definitions."""

from collections import OrderedDict

COUNTS = (
    "hits",
    "misses",
    "compulsory",
    "conflict",
    "evictions",
    "writebacks",
    "writethroughs",
    "fetched",
)


class Lru:
    """Keys in order of use; the first one leaves."""

    def __init__(self, capacity):
        self.capacity, self.lines = capacity, OrderedDict()

    def __contains__(self, line):
        return line in self.lines

    def touch(self, line, write):
        self.lines[line] |= write
        self.lines.move_to_end(line)

    def insert(self, line, write):
        """Return None, or (dirty,) of the line that left."""
        left = None
        if len(self.lines) == self.capacity:
            left = (self.lines.popitem(last=False)[1],)
        self.lines[line] = write
        return left

    def dirty(self):
        return sum(self.lines.values())


class Fifo(Lru):
    def touch(self, line, write):
        self.lines[line] |= write


class Plru:
    """One set with a binary tree of bits, written as nested halves."""

    def __init__(self, ways):
        self.ways, self.slots, self.bits = ways, [None] * ways, {}

    def __contains__(self, line):
        return any(slot and slot[0] == line for slot in self.slots)

    def _point_away(self, way):
        low, high = 0, self.ways
        while high - low > 1:
            middle = (low + high) // 2
            self.bits[low, high] = "right" if way < middle else "left"
            low, high = (low, middle) if way < middle else (middle, high)

    def touch(self, line, write):
        way = next(i for i, slot in enumerate(self.slots) if slot and slot[0] == line)
        self.slots[way] = (line, self.slots[way][1] | write)
        self._point_away(way)

    def insert(self, line, write):
        left = None
        if None in self.slots:
            way = self.slots.index(None)
        else:
            low, high = 0, self.ways
            while high - low > 1:
                middle = (low + high) // 2
                right = self.bits.get((low, high)) == "right"
                low, high = (middle, high) if right else (low, middle)
            way = low
            left = (self.slots[way][1],)
        self.slots[way] = (line, write)
        self._point_away(way)
        return left

    def dirty(self):
        return sum(slot[1] for slot in self.slots if slot)


def simulate(
    trace, capacity, *, make=Lru, ways=None, write_allocate=True, write_back=True, flush=True
):
    """Counts of one cache; `trace` is a list of (line, write)."""
    count = dict.fromkeys(
        [
            "hits",
            "misses",
            "compulsory",
            "conflict",
            "evictions",
            "writebacks",
            "writethroughs",
            "fetched",
        ],
        0,
    )
    sets = 1 if ways is None else capacity // ways
    caches = [make(capacity // sets) for _ in range(sets)]
    shadow = Lru(capacity)
    seen = set()
    for line, write in trace:
        shadow_hit = line in shadow
        allocates = not write or write_allocate
        if shadow_hit:
            shadow.touch(line, False)
        elif allocates:
            shadow.insert(line, False)
        cache = caches[(line % 2**64) % sets]
        count["writethroughs"] += write and not write_back
        if line in cache:
            count["hits"] += 1
            cache.touch(line, write and write_back)
        else:
            count["misses"] += 1
            count["compulsory"] += line not in seen
            count["conflict"] += ways is not None and shadow_hit
            if allocates:
                count["fetched"] += 1
                left = cache.insert(line, write and write_back)
                if left is not None:
                    count["evictions"] += 1
                    count["writebacks"] += left[0]
            else:
                count["writethroughs"] += write_back
        seen.add(line)
    count["flushed"] = sum(cache.dirty() for cache in caches) if flush else 0
    count["writebacks"] += count["flushed"]
    count["capacity"] = count["misses"] - count["compulsory"] - count["conflict"]
    return {name: int(value) for name, value in count.items()}


def simulate_opt(
    trace, capacity, *, write_allocate=True, write_back=True, flush=True, bypass=False
):
    """Belady's rule by looking ahead; among lines never used again clean ones leave first."""
    count = dict.fromkeys(
        [
            "hits",
            "misses",
            "compulsory",
            "conflict",
            "evictions",
            "writebacks",
            "writethroughs",
            "fetched",
        ],
        0,
    )
    cache, seen = {}, set()
    for now, (line, write) in enumerate(trace):

        def next_use(wanted, now=now):
            for later in range(now + 1, len(trace)):
                if trace[later][0] == wanted:
                    return later
            return float("inf")

        count["writethroughs"] += write and not write_back
        mark = write and write_back
        if line in cache:
            count["hits"] += 1
            cache[line] |= mark
        else:
            count["misses"] += 1
            count["compulsory"] += line not in seen
            takes_in = not write or write_allocate
            victim = None
            if takes_in and len(cache) == capacity:
                victim = max(cache, key=lambda held: (next_use(held), not cache[held]))
                if bypass and next_use(line) >= next_use(victim):
                    takes_in = False
            if takes_in:
                count["fetched"] += 1
                if victim is not None:
                    count["evictions"] += 1
                    count["writebacks"] += cache.pop(victim)
                cache[line] = mark
            else:
                count["fetched"] += not write
                count["writethroughs"] += write and write_back
        seen.add(line)
    count["flushed"] = sum(cache.values()) if flush else 0
    count["writebacks"] += count["flushed"]
    count["capacity"] = count["misses"] - count["compulsory"]
    return {name: int(value) for name, value in count.items()}


def lru_distances(lines):
    """Stack distance of every access, None for the first one to a line."""
    stack, distances = [], []
    for line in lines:
        distances.append(stack.index(line) + 1 if line in stack else None)
        if line in stack:
            stack.remove(line)
        stack.insert(0, line)
    return distances


def opt_distances(lines):
    """Mattson's stack update with the priority of OPT: needed sooner stays nearer to the top."""

    def next_use(line, now):
        return lines.index(line, now + 1) if line in lines[now + 1 :] else float("inf")

    stack, distances = [], []
    for now, line in enumerate(lines):
        distance = stack.index(line) + 1 if line in stack else None
        distances.append(distance)
        end = len(stack) if distance is None else distance - 1
        carried, new = line, []
        for place in range(end):
            other = stack[place]
            if (place > 0 and next_use(carried, now) < next_use(other, now)) or place == 0:
                new.append(carried)
                carried = other
            else:
                new.append(other)
        new.append(carried)
        stack = new + stack[end + (distance is not None) :]
    return distances
