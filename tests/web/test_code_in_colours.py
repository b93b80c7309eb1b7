"""Code in the pages is coloured, and no text keeps a page waiting for its colours."""

from __future__ import annotations

import time

import pytest

from sessionstore.web.code import highlighted


def test_code_is_marked_up_in_the_language_it_names():
    assert '<span class="k">def</span>' in highlighted("def f():\n    return 1\n", "python")
    assert highlighted("x", "no such language") == ""
    assert highlighted("x", "") == ""


@pytest.mark.parametrize(
    ("language", "piece"),
    [("gnuplot", "a"), ("apacheconf", "<"), ("ragel-java", "a\n"), ("ucode", "\n"), ("q", "1")],
)
def test_a_text_that_takes_the_square_of_its_length_is_left_without_colours(language, piece):
    begun = time.thread_time()

    highlighted((piece * 20_000)[:20_000], language)

    assert time.thread_time() - begun < 2
