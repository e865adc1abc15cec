"""Stop strings: which one wins, and how much text is withheld."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from framework.engine.stops import Match, StopMatcher

TEXTS = st.text("ab", max_size=24)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4)


def first_completed(text: str, stops: list[str]) -> tuple[int, str] | None:
    """The obvious way: at each end, the first listed stop that ends there."""
    for end in range(1, len(text) + 1):
        for stop in stops:
            if text[:end].endswith(stop):
                return end, stop
    return None


def longest_beginning(text: str, stops: list[str]) -> int:
    """The obvious way: the longest end of the text that begins a stop but is not all of it."""
    lengths = [
        length
        for stop in stops
        for length in range(1, min(len(stop), len(text) + 1))
        if text.endswith(stop[:length])
    ]
    return max(lengths, default=0)


@given(TEXTS, STOPS)
def test_the_stop_that_completes_first_wins_and_the_first_listed_among_equals(text, stops):
    match = StopMatcher(stops).feed(text, act=True)
    assert (match and (match.end, match.stop)) == first_completed(text, stops)


@given(TEXTS, STOPS)
def test_withheld_is_the_longest_end_that_may_still_become_a_stop(text, stops):
    matcher = StopMatcher(stops)
    matcher.feed(text, act=False)
    assert matcher.withheld == longest_beginning(text, stops)


@given(st.lists(TEXTS, max_size=6), STOPS)
def test_pieces_of_a_text_are_searched_like_the_whole(pieces, stops):
    matcher, before, found = StopMatcher(stops), 0, None
    for piece in pieces:
        match = matcher.feed(piece, act=True)
        if match is not None:
            found = (before + match.end, match.stop)
            break
        before += len(piece)
    assert found == first_completed("".join(pieces), stops)


def test_a_stop_that_is_listed_twice_stands_where_it_was_listed_first():
    assert StopMatcher(["ab", "b", "ab"]).feed("ab", act=True) == Match(2, "ab")


def test_outputs_of_one_request_share_what_is_made_of_its_stop_strings():
    """16384 outputs may have 16384 characters of them."""
    one, other = (StopMatcher(["ab", "bcd"]) for _ in range(2))
    assert one._automaton is other._automaton
    one.feed("a", act=True)
    assert other.feed("b", act=True) is None
    assert one.feed("b", act=True) == Match(1, "ab")
    assert other.withheld == 1
