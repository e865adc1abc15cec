"""The pool of pages: reference counts, the free list, and which hash lies in which page."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from framework.errors import IntegrityError

NULL_PAGE = 0
LEAST_PAGES = 2  # the null page and one more


class PagePool:
    """`num_pages` pages, of which page 0 is the null page and never owned.

    Free pages form a doubly linked list in two Python lists of integers: unlike a deque it
    lets a page that is hit leave from the middle in constant time, and scalar access to a
    list is several times cheaper than to a numpy array.  Pages are reused from the front;
    a page that holds a hash goes to the back (least recently used first), one that holds
    none to the front, because nothing is lost with it.
    """

    def __init__(self, num_pages: int) -> None:
        if num_pages < LEAST_PAGES:
            raise ValueError("a pool needs the null page and one more")
        self.num_pages = num_pages
        self._end = num_pages  # the list's anchor: its neighbours are both ends
        self._next = list(range(1, num_pages + 2))
        self._prev = list(range(-1, num_pages))
        self._next[self._end], self._prev[self._end] = 1, num_pages - 1
        self._next[num_pages - 1], self._prev[1] = self._end, self._end
        self.references = [0] * num_pages
        self.references[NULL_PAGE] = 1
        self.num_free = num_pages - 1
        self.evictions = 0
        # Rises whenever a page becomes free, taken or nameless, loses a reader, or is `named`.
        self.changes = 0
        self.on_removed: Callable[[bytes], None] | None = None
        self._hash_of: list[bytes | None] = [None] * num_pages
        self._content: list[bytes] = [b""] * num_pages
        self._page_of: dict[bytes, int] = {}

    def _unlink(self, page: int) -> None:
        before, after = self._prev[page], self._next[page]
        self._next[before], self._prev[after] = after, before
        self.num_free -= 1
        self.changes += 1

    def _link(self, page: int, before: int, after: int) -> None:
        self._prev[page], self._next[page] = before, after
        self._next[before] = self._prev[after] = page
        self.num_free += 1
        self.changes += 1

    def allocate(self, count: int) -> list[int]:
        """`count` pages with one reference each; the caller checked `num_free`."""
        if count > self.num_free:
            raise IntegrityError("the pool was asked for more pages than are free")
        self.changes += 1
        following, references, hashes = self._next, self.references, self._hash_of
        pages = []
        page = following[self._end]
        for _ in range(count):
            references[page] = 1
            if hashes[page] is not None:
                self.evictions += 1
                self._forget(page)
            pages.append(page)
            page = following[page]
        # All of them leave the list's front at once.
        following[self._end], self._prev[page] = page, self._end
        self.num_free -= count
        return pages

    def acquire(self, pages: Iterable[int]) -> None:
        """One more reference to pages that hold something."""
        for page in pages:
            if self.references[page] == 0:
                self._unlink(page)
            self.references[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """One reference less; a page without references becomes free, still holding its hash."""
        for page in pages:
            self.references[page] -= 1
            if self.references[page] > 0:
                self.changes += 1  # it may be its last reader's own now
                continue
            if self.references[page] < 0:
                raise IntegrityError("a page was given back twice", found=page)
            end = self._end
            if self._hash_of[page] is None:
                self._link(page, end, self._next[end])
            else:
                self._link(page, self._prev[end], end)

    def find(self, key: bytes) -> int | None:
        """The page that holds `key`, or None."""
        return self._page_of.get(key)

    def num_unreferenced(self, pages: Iterable[int]) -> int:
        """How many of `pages` are free now, so that acquiring them uses up free pages."""
        return sum(1 for page in pages if self.references[page] == 0)

    def holds(self, page: int, content: bytes) -> bool:
        """Whether what was stored with the page's name is `content`: false if two contents
        have one name."""
        return self._content[page] == content

    def store(self, page: int, key: bytes, content: bytes) -> bool:
        """`page` now holds `key`, made from `content`.  False if another page does already
        (or this one has a name): then it stays as it is."""
        if self._hash_of[page] is not None or key in self._page_of:
            return False
        self._hash_of[page] = key
        self._content[page] = content
        self._page_of[key] = page
        return True

    def named(self) -> None:
        """Pages were stored: told once for many."""
        self.changes += 1

    def _forget(self, page: int) -> None:
        key = self._hash_of[page]
        if key is not None:
            self.changes += 1
            self._hash_of[page] = None
            self._content[page] = b""
            del self._page_of[key]
            if self.on_removed is not None:
                self.on_removed(key)

    def forget(self, pages: Iterable[int]) -> None:
        """The content of these pages was lost: nobody may hit it any more."""
        for page in pages:
            if not 0 < page < self.num_pages:
                raise IntegrityError(
                    "pages are reported as lost that do not exist",
                    expected=f"ids in (0, {self.num_pages})",
                    found=page,
                )
            self._forget(page)

    def forget_all(self) -> None:
        """Empty the prefix cache."""
        self.forget(list(self._page_of.values()))

    @property
    def num_hashed(self) -> int:
        return len(self._page_of)

    def check_integrity(self, owners: Iterable[Iterable[int]]) -> None:
        """`owners`: the pages of each owner, null pages among them."""
        references: dict[int, int] = {}
        for page in (page for own in owners for page in own if page != NULL_PAGE):
            references[page] = references.get(page, 0) + 1
        free: list[int] = []
        page = self._next[self._end]
        while page != self._end and len(free) <= self.num_pages:
            free.append(page)
            page = self._next[page]
        if len(free) != self.num_free:  # where a page comes twice the list has no end
            raise IntegrityError("the free list is broken", expected=self.num_free, found=free)
        for page in range(1, self.num_pages):
            if self.references[page] != references.get(page, 0):
                raise IntegrityError(
                    f"references of page {page} are wrong",
                    expected=references.get(page, 0),
                    found=self.references[page],
                )
        used = sum(1 for count in self.references[1:] if count > 0)
        if used + len(free) + 1 != self.num_pages or any(self.references[p] for p in free):
            raise IntegrityError("free, used and null pages are not all pages")
        for key, page in self._page_of.items():
            if self._hash_of[page] != key:
                raise IntegrityError("a cached hash points to a page that does not hold it")
        if sum(key is not None for key in self._hash_of) != len(self._page_of):
            raise IntegrityError("a page holds a hash that nobody can find")
