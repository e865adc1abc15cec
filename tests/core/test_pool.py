"""The check of the pool itself finds whatever can be wrong with it, one fault at a time."""

from __future__ import annotations

import pytest

from framework.core.kv.pages import PagePool
from framework.errors import IntegrityError


def made():
    """Pages 1 and 2 are used, 1 by two and with a name; 3 is free with a name; 4 to 7 are free."""
    pool = PagePool(8)
    first, second, third = pool.allocate(3)
    pool.acquire([first])
    pool.store(first, b"first", b"")
    pool.store(third, b"third", b"")
    pool.release([third])
    assert (first, second, third) == (1, 2, 3)
    return pool


OWNERS = [[1, 0], [1, 2]]


def test_a_pool_that_is_whole_passes():
    made().check_integrity(OWNERS)


def lose(pool, page):
    """Out of the free list, which is whole without it."""
    before, after = pool._prev[page], pool._next[page]
    pool._next[before], pool._prev[after] = after, before
    pool.num_free -= 1


def free_and_used(pool):
    """As many pages as there must be, but one is lost, and a used one stands in its place."""
    before, after = pool._prev[5], pool._next[5]
    pool._next[before] = pool._prev[after] = 2
    pool._prev[2], pool._next[2] = before, after


FAULTS = {
    "one reference too many": (lambda p: p.references.__setitem__(2, 2), "references of page 2"),
    "one reference too few": (lambda p: p.references.__setitem__(1, 1), "references of page 1"),
    "a reference of nobody": (lambda p: p.references.__setitem__(7, 1), "references of page 7"),
    "more free than listed": (lambda p: setattr(p, "num_free", 6), "free list is broken"),
    "fewer free than listed": (lambda p: setattr(p, "num_free", 4), "free list is broken"),
    "free twice": (lambda p: p._next.__setitem__(6, 5), "free list is broken"),
    "neither free nor used": (lambda p: lose(p, 5), "not all pages"),
    "free and used": (free_and_used, "not all pages"),
    "a name of another page": (lambda p: p._page_of.__setitem__(b"first", 2), "does not hold"),
    "a name that none holds": (lambda p: p._hash_of.__setitem__(3, None), "does not hold"),
    "a name nobody finds": (lambda p: p._hash_of.__setitem__(4, b"lost"), "nobody can find"),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_every_fault_is_found_and_told(fault):
    pool = made()
    spoil, told = FAULTS[fault]
    spoil(pool)
    with pytest.raises(IntegrityError, match=told):
        pool.check_integrity(OWNERS)


def test_an_owner_that_nobody_counted_is_found():
    with pytest.raises(IntegrityError, match="references of page 2"):
        made().check_integrity([*OWNERS, [2]])


def test_the_smallest_pool_has_one_page_beside_the_null_page():
    pool = PagePool(2)
    assert pool.allocate(1) == [1]
    pool.check_integrity([[1]])
    with pytest.raises(ValueError, match="one more"):
        PagePool(1)
