"""How many keys the queries of one document see."""


def keys_seen(length: int, *, window: int | None = None, causal: bool = True) -> int:
    """Keys that the queries of one document of ``length`` tokens see, summed over its queries.

    Causal: query i (from 0) sees ``min(i + 1, window)`` keys, ``length (length + 1) / 2`` in all
    without a window. Not causal: every query sees ``min(length, window)``; this is the convention
    that counts masked scores too.
    """
    reach = length if window is None else min(window, length)
    if not causal:
        return length * reach
    return reach * (reach + 1) // 2 + (length - reach) * reach


def keys_seen_in_chunks(length: int, chunk: int, *, causal: bool = True) -> int:
    """As ``keys_seen`` where a query sees its own chunk only (Llama 4)."""
    whole, rest = divmod(length, chunk)
    return whole * keys_seen(chunk, causal=causal) + keys_seen(rest, causal=causal)


def entries_seen(length: int, stride: int, *, most: int | None = None, causal: bool = True) -> int:
    """Compressed entries that the queries see when every ``stride`` tokens leave one entry.

    Causal: query i (from 0) sees the ``(i + 1) // stride`` entries closed so far, ``most`` at most.
    """
    closed = length // stride
    if not causal:
        return length * (closed if most is None else min(closed, most))
    free = closed if most is None else min(closed, most)
    seen = stride * free * (free - 1) // 2  # queries that see 1 .. free - 1 entries, stride each
    first_at_limit = free * stride - 1  # the first query that sees ``free`` entries
    return seen + free * (length - first_at_limit) if free else 0
