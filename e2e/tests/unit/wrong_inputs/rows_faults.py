"""Faults that are unknown, or that can't act where they are to be planted."""

from row import Row

#: Of the embedded connector; each needs something that its cells are to lack.
_LEFT_OUT = {
    "a fault of the kernel where cells place by index": ("physical_view_omitted", "placement=index", "places by index"),
    "a fault of the kernel without overlap": ("token_first_view", "placement=kernel,overlap=off", "Without overlap"),
    "a fault of the kernel on the layout that it spares": (
        "physical_view_omitted",
        "layout=HND,placement=kernel,overlap=on",
        "strikes NHD only",
    ),
    "a fault of index placement where cells place by a kernel": (
        "axes_swapped_index",
        "placement=kernel",
        "places by a kernel",
    ),
    "a fault of strided tensors on a contiguous one": ("write_into_copy", "layout=HND", "contiguous"),
    "a fault on the second rank of one": ("bit_flip_on_rank_1", "tensor_parallel=1", "There is no rank 1"),
    "a fault of overlap without overlap": ("overlap_not_waited", "overlap=off", "needs overlap"),
}
_UNKNOWN = {
    "an unknown fault, with the name that was meant": ("bit_flp", "did you mean bit_flip?"),
    "a fault in capitals": ("BIT_FLIP", "did you mean bit_flip?"),
    "a fault with hyphens": ("zero-layer", "did you mean zero_layer?"),
    "a fault that is like none": ("gremlin", "use one of the catalogue of faults"),
    "an empty fault": ("", "use one of the catalogue of faults"),
    "two faults in one word": ("bit_flip,zero_layer", "give --fault once for each"),
    "a fault on a rank without a number": ("bit_flip_on_rank_one", "use one of the catalogue of faults"),
    "an unknown fault on a rank": ("gremlin_on_rank_1", "use one of the catalogue of faults"),
    "a fault on a negative rank": ("bit_flip_on_rank_-1", "use one of the catalogue of faults"),
    "a fault by its class": ("A", "use one of the catalogue of faults"),
}

ROWS = (
    Row(
        "no fault and a fault",
        ("faults", "--fault", "none", "--fault", "bit_flip"),
        2,
        ("--fault: none plants nothing", "drop one or the other"),
    ),
    Row(
        "a token that no answer has",
        ("faults", "--fault", "spoilt_at_token_12", "--scenario", "arms"),
        2,
        ("no fault is left to plant", "--max-tokens 12", "widen"),
    ),
    Row(
        "a fault of ranks where there is one",
        ("faults", "--fault", "first_ranks_share"),
        2,
        ("no fault is left to plant", "tensor_parallel=2", "widen"),
    ),
    *(Row(name, ("faults", "--fault", word), 2, (f"fault {word!r}", hint)) for name, (word, hint) in _UNKNOWN.items()),
    *(
        Row(name, ("faults", "--fault", fault, "--cell", cell), 2, ("no fault is left to plant", why, "widen"))
        for name, (fault, cell, why) in _LEFT_OUT.items()
    ),
    Row(
        "a fault of another prompt where there is one prompt",
        ("faults", "--fault", "equal_length_prompt", "--prompts", "1"),
        2,
        ("no fault is left to plant", "There is one prompt", "widen"),
    ),
    Row(
        "a fault of the double around a foreign connector",
        ("faults", "--connector", "example", "--fault", "one_slot_off"),
        2,
        ("no fault is left to plant", "can't be planted around one that plants none", "widen"),
    ),
    Row(
        "faults around a connector that this machine can't run",
        ("faults", "--connector", "lmcache", "--fault", "bit_flip"),
        2,
        ("runs on CUDA only", "--connector embedded"),
    ),
    Row(
        "a fault chosen as if it were an axis",
        ("run", "--cell", "layout=HND,fault=bit_flip"),
        2,
        ("fault is no axis", "maru-e2e faults --fault"),
    ),
    Row(
        "a round chosen as if it were an axis",
        ("run", "--cell", "round=2"),
        2,
        ("round is no axis", "maru-e2e faults --rounds"),
    ),
)
