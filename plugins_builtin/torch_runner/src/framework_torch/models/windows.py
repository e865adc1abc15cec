"""How far each layer sees."""

from __future__ import annotations

from framework_torch.models.reader import OTHER, Reader

SLIDING, FULL = "sliding_attention", "full_attention"
Windows = tuple[int | None, ...]


def read_windows(reader: Reader, layers: int) -> Windows:
    """One entry per layer; None sees everything."""
    match reader.family.window:
        case "all":
            window = None if reader.get("sliding_window") is None else reader.size("sliding_window")
            return (window,) * layers
        case "by_layer":
            return _by_layer(reader, layers)
        case "pattern":
            return _by_pattern(reader, layers)
        case _:
            return (None,) * layers


def _by_layer(reader: Reader, layers: int) -> Windows:
    """Qwen's rule: a switch, and layers by name or from a number on."""
    kinds = _layer_types(reader, layers)
    if not reader.flag("use_sliding_window"):
        if kinds and SLIDING in kinds:
            reader.reject("layer_types", SLIDING, "use_sliding_window=true", OTHER)
        return (None,) * layers
    if reader.get("sliding_window") is None:
        return (None,) * layers
    window = reader.size("sliding_window")
    if kinds is None:
        first = reader.get("max_window_layers")
        first = first if isinstance(first, int) else layers
        return tuple(window if index >= first else None for index in range(layers))
    return tuple(window if kind == SLIDING else None for kind in kinds)


def _by_pattern(reader: Reader, layers: int) -> Windows:
    """Gemma's rule: layers by name, or every n-th one sees everything."""
    kinds = _layer_types(reader, layers)
    if kinds is None:
        every = reader.size("sliding_window_pattern")
        kinds = tuple(SLIDING if (index + 1) % every else FULL for index in range(layers))
    window = reader.size("sliding_window") if SLIDING in kinds else None
    return tuple(window if kind == SLIDING else None for kind in kinds)


def _layer_types(reader: Reader, layers: int) -> tuple[str, ...] | None:
    kinds = reader.get("layer_types")
    if kinds is None:
        return None
    known = (FULL, SLIDING)
    if not isinstance(kinds, list | tuple) or len(kinds) != layers:
        reader.fault("layer_types", kinds, f"a list of {layers} entries")
        return None
    if any(kind not in known for kind in kinds):
        reader.reject("layer_types", kinds, f"a list of {' or '.join(known)}", OTHER)
        return None
    return tuple(kinds)
