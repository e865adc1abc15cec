"""Parts of a forward pass: spans of layers, and taps."""

import torch

from framework_torch.models.definition import DecoderDefinition
from framework_torch.weights.safetensors_loader import SafetensorsLoader


class OwnValues:
    """A context in which every token attends only itself: the result is its own v."""

    def attend(self, layer, q, k, v):
        return v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)


def test_two_spans_of_layers_equal_the_whole_and_taps_show_what_lies_between(tiny) -> None:
    files = tiny("llama").files
    model = DecoderDefinition().build(files, SafetensorsLoader().open(files), "float32", 0)
    positions = torch.arange(5)
    with torch.inference_mode():
        start = model.embed(torch.tensor([4, 8, 15, 16, 23]))
        whole = model.forward(start, positions, OwnValues())
        middle = model.forward(start, positions, OwnValues(), layers=range(1))
        end = model.forward(middle, positions, OwnValues(), layers=range(1, 2))
        tapped, states = model.forward(start, positions, OwnValues(), taps=(0, 1))
    assert torch.equal(whole, end)
    assert torch.equal(whole, tapped)
    assert torch.equal(states[0], middle)
    assert torch.equal(model.norm(states[1]), whole)
