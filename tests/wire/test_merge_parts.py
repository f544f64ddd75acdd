"""Where a long list is split, and positions in an upstream's messages about one part."""

import pytest

from gateway.wire.openai.merge import shift_positions, split_list


@pytest.mark.parametrize(
    ("weights", "max_inputs", "max_tokens", "sizes"),
    [
        ([1] * 1260, 1024, 10**6, [1024, 236]),
        ([1] * 11, 10, 100, [10, 1]),
        ([1] * 10, 10, 100, [10]),
        ([4, 4, 4, 4], 10, 8, [2, 2]),
        ([9, 1, 1, 9, 9], 10, 8, [1, 2, 1, 1]),
        ([3], 1, 1, [1]),
    ],
)
def test_batch_09_parts_keep_both_bounds(weights: list[int], max_inputs: int, max_tokens: int, sizes: list[int]):
    parts = split_list([b'"a"'] * len(weights), weights, max_inputs, max_tokens)
    assert [part.stop - part.start for part in parts] == sizes
    assert [at for part in parts for at in range(part.start, part.stop)] == list(range(len(weights)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("'$.input[3]' is invalid", "'$.input[103]' is invalid"),
        ("input.3: too long", "input.103: too long"),
        ("Input at index 3 is empty; index 7 too.", "Input at index 103 is empty; index 107 too."),
        ("bad item (index=0)", "bad item (index=100)"),
        ("'loc': ('body', 'input', 'list[str]', 3)", "'loc': ('body', 'input', 'list[str]', 103)"),
        ("'loc': ('body', 'input', 3)", "'loc': ('body', 'input', 103)"),
        ('"loc":["body","prompt",3]', '"loc":["body","prompt",103]'),
        ("body.input.list[str].3", "body.input.list[str].103"),
        ("prompt[12][4] is no token", "prompt[112][4] is no token"),
    ],
)
def test_positions_refer_to_the_complete_list(before: str, after: str):
    assert shift_positions(before, 100) == after
    assert shift_positions(before, 0) == before


@pytest.mark.parametrize(
    "message",
    [
        "The input, 9000 tokens, is longer than 8192.",
        "This model takes 8192 tokens of input. 9000 were given.",
        "max_input[3] or reindex 3",
        "unindexed 5",
        "dimensions must be at most 384",
    ],
)
def test_unrelated_numbers_are_unchanged(message: str):
    assert shift_positions(message, 100) == message
