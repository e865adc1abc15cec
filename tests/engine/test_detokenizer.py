"""Text from token ids, byte for byte (field bugs 1 to 5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.engine.detokenizer import Detokenizer, continues

EMOJI = "😀👩‍👩‍👧🇩🇪é漢"


def pieces_of(detokenizer, steps):
    """The pieces that a stream gets, one per step and one for the end."""
    pieces = []
    for ids in steps:
        stopped = detokenizer.push(ids)
        pieces.append(detokenizer.take())
        if stopped:
            return pieces
    detokenizer.finish()
    return [*pieces, detokenizer.take()]


def cut(ids, sizes):
    """`ids` in steps of the given sizes, the rest one by one."""
    steps, place = [], 0
    for size in sizes:
        steps.append(ids[place : place + size])
        place += size
    return [*steps, *([token] for token in ids[place:])]


@given(st.binary(max_size=30), st.lists(st.integers(0, 4), max_size=10))
def test_streamed_bytes_equal_the_whole_whatever_the_bytes(byte_tokenizer, data, sizes):
    detokenizer = Detokenizer(byte_tokenizer())
    pieces = pieces_of(detokenizer, cut(list(data), sizes))
    assert "".join(pieces) == data.decode("utf-8", "replace")


@given(
    st.lists(st.integers(-5, 400), max_size=30),
    st.lists(st.integers(0, 4), max_size=10),
    st.booleans(),
)
def test_any_ids_in_any_order_and_out_of_range_are_taken(byte_tokenizer, ids, sizes, skip):
    tokenizer = byte_tokenizer(["über", "\n\n"])
    detokenizer = Detokenizer(tokenizer, skip_special=skip)
    text = "".join(pieces_of(detokenizer, cut(ids, sizes)))
    assert text == tokenizer.decode(ids, skip_special_tokens=skip)


@given(
    st.text("ab😀 ", max_size=20),
    st.lists(st.text("ab😀", min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.integers(0, 5), max_size=10),
    st.integers(0, 12),
    st.booleans(),
)
def test_several_tokens_in_a_step_stop_like_one_at_a_time(
    byte_tokenizer, text, stops, sizes, min_tokens, include
):
    ids = list(text.encode())
    options = {"stops": stops, "min_tokens": min_tokens, "include_stop": include}
    single = Detokenizer(byte_tokenizer(), **options)
    expected = "".join(pieces_of(single, [[token] for token in ids]))
    several = Detokenizer(byte_tokenizer(), **options)
    pieces = pieces_of(several, cut(ids, sizes))
    assert "".join(pieces) == expected
    assert (several.stop, several.num_tokens) == (single.stop, single.num_tokens)
    if single.stop is None:
        assert expected == text
    elif include:
        assert expected.endswith(single.stop)
    else:
        assert text.startswith(expected + single.stop)
        assert single.num_tokens > min_tokens


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_split_over_tokens_leaks_nothing(byte_tokenizer, include):
    detokenizer = Detokenizer(byte_tokenizer(), stops=["###"], include_stop=include)
    pieces = pieces_of(detokenizer, [[token] for token in b"a#b##c###d"])
    assert pieces == ["a", "", "#b", "", "", "##c", "", "", "###" if include else ""]
    assert detokenizer.num_tokens == 9


def test_withheld_text_comes_out_at_the_end(byte_tokenizer):
    detokenizer = Detokenizer(byte_tokenizer(), stops=["###"])
    assert pieces_of(detokenizer, [list(b"a##")]) == ["a", "##"]


def test_of_two_stops_in_one_step_the_one_that_completes_first_wins(byte_tokenizer):
    tokenizer = byte_tokenizer(["x END", " y ST", "OP z", " END2"])
    detokenizer = Detokenizer(tokenizer, stops=["END2", "STOP"])
    assert detokenizer.push([260, 261, 262, 263])
    assert (detokenizer.take(), detokenizer.stop, detokenizer.num_tokens) == ("x END y ", "STOP", 3)


def test_every_emoji_as_byte_tokens_is_whole_and_never_replaced(byte_tokenizer):
    pieces = pieces_of(Detokenizer(byte_tokenizer()), [[token] for token in EMOJI.encode()])
    assert [piece for piece in pieces if piece] == list(EMOJI)


def test_a_lone_byte_is_replaced_at_once_and_half_a_character_at_the_end(byte_tokenizer):
    assert pieces_of(Detokenizer(byte_tokenizer()), [[0xA1], [65]]) == ["�", "A", ""]
    assert pieces_of(Detokenizer(byte_tokenizer()), [[0xF0], [0x9F]]) == ["", "", "�"]


def test_a_special_token_inside_a_character_does_not_break_it(byte_tokenizer):
    ids = [0xC3, 257, 0xA9]
    assert "".join(pieces_of(Detokenizer(byte_tokenizer()), [ids])) == "é"


@pytest.mark.parametrize(("min_tokens", "text"), [(0, "a"), (2, "a"), (3, "a##b"), (6, "a##b##c")])
def test_min_tokens_lets_stops_pass_that_complete_within_them(byte_tokenizer, min_tokens, text):
    # Token 3 completes the first "##", token 6 the second.
    detokenizer = Detokenizer(byte_tokenizer(), stops=["##"], min_tokens=min_tokens)
    assert "".join(pieces_of(detokenizer, [[i] for i in b"a##b##c"])) == text


def test_a_leading_space_is_dropped_only_where_a_text_begins(byte_tokenizer):
    ids = list(b" a b")
    for strips, at_start, text in [
        (True, True, "a b"),
        (True, False, " a b"),
        (False, True, " a b"),
    ]:
        detokenizer = Detokenizer(byte_tokenizer(strips=strips), at_start=at_start)
        assert "".join(pieces_of(detokenizer, [[i] for i in ids])) == text


def test_an_output_continues_a_prompt_that_has_text(byte_tokenizer):
    tokenizer = byte_tokenizer()
    assert continues(tokenizer, [257, 65, 256], skip_special=True)
    assert not continues(tokenizer, [257, 256], skip_special=True)
    assert continues(tokenizer, [257, 256], skip_special=False)
