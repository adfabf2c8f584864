"""Faults that strike one of several places: layers, heads, slots, blocks, chunks, loads, prompts and ranks."""

from __future__ import annotations

from e2e.faults import applies
from e2e.faults.info import FaultInfo

_ROWS = ("truncated_tail", "not_written", "unknown")

PARTIAL = (
    FaultInfo("last_token_dropped", "the last token of a load is not written",
        "class E, an end that one side counts in", _ROWS, applies.always, kind="partial unit"),
    FaultInfo("first_token_dropped", "the first token of a load is not written", "class E, a start counted from one",
        _ROWS, applies.always, kind="partial unit"),
    FaultInfo("last_block_dropped", "the last block of a load is not written", "class E, blocks counted one short",
        _ROWS, applies.always, kind="partial unit"),
    FaultInfo("block_ends_dropped", "the last token of every block is not written",
        "class E, a block copied one token short", _ROWS, applies.several_tokens, kind="partial unit"),
    FaultInfo("first_chunk_cut", "the second half of the first chunk is not written",
        "class E, a chunk taken for a smaller one", _ROWS, applies.always, kind="partial unit"),
    FaultInfo("tail_reversed", "keys of the last block's tokens lie in reverse order", "class E, a tail of its own way",
        ("shifted_by_n_slots", "unknown"), applies.several_blocks, kind="partial unit", around_any=True),
    FaultInfo("tail_repeated", "the last block is the one before it once more", "class E, a tail read one block early",
        ("shifted_by_n_slots", "unknown"), applies.several_blocks, kind="partial unit", around_any=True),
)  # fmt: skip
LOST = (
    FaultInfo("last_chunk_vanished", "the last chunk vanished, and the load is reported good",
        "class C, object vanished between lookup and load", ("truncated_tail", "not_written"), applies.always,
        kind="failed load"),
    FaultInfo("every_chunk_vanished", "nothing of a load is there any more, and it is reported good",
        "class C, the store was emptied under a live engine", ("not_written", "truncated_tail"), applies.always,
        kind="failed load"),
    FaultInfo("first_layer_never_loaded", "the first layer is reported loaded, and is not",
        "class C, a loop that starts at one", ("not_written",), applies.layers, kind="failed load"),
    FaultInfo("last_layer_never_loaded", "the last layer is reported loaded, and is not",
        "class C, a loop that ends one short", ("not_written",), applies.layers, kind="failed load"),
    FaultInfo("values_zeroed", "values come back as zeros", "class C, the second of two transfers never ran",
        ("zeros",), applies.always, kind="failed load", around_any=True),
    FaultInfo("half_the_layers_zeroed", "the second half of the layers comes back as zeros",
        "class C, an object that was cut off", ("zeros",), applies.layers, kind="failed load", around_any=True),
    FaultInfo("short_read", "the end of a load is what the load before left in the buffer",
        "class C, a read that ended early", ("truncated_tail", "stale", "unknown"), applies.other_prompts,
        kind="failed load"),
)  # fmt: skip
PLACES = (
    FaultInfo("first_head_everywhere", "every head gets the first one's bytes", "class A, a stride of heads left out",
        ("heads_permuted", "unknown"), applies.heads, kind="addressing", around_any=True),
    FaultInfo("halves_swapped", "the halves of every key are swapped", "class A, one rotary layout for the other",
        ("reinterpreted", "unknown"), applies.always, kind="addressing", around_any=True),
    FaultInfo("first_layer_neighbour", "the first layer gets the next one's bytes",
        "class A, an offset that forgot the first", ("neighbour_layer",), applies.layers, kind="addressing"),
    FaultInfo("last_layer_neighbour", "the last layer gets the one before it",
        "class A, an offset that ran out of layers", ("neighbour_layer",), applies.layers, kind="addressing"),
    FaultInfo("one_slot_back", "every token lies one slot too early, the first nowhere",
        "class A, slots counted from one", ("shifted_by_n_slots",), applies.always, kind="addressing"),
    FaultInfo("one_block_off", "every block lies in the place of the next one", "class A, a block table read one off",
        ("shifted_by_n_slots",), applies.always, kind="addressing"),
    FaultInfo("blocks_reversed", "blocks lie in reverse order", "class A, a block table read from its end",
        ("shifted_by_n_slots", "unknown"), applies.several_blocks, kind="addressing"),
    FaultInfo("chunks_exchanged", "the first and the last chunk are exchanged", "class A, objects in another order",
        ("shifted_by_n_slots", "unknown"), applies.chunks, kind="addressing"),
    FaultInfo("local_part_not_skipped", "a hit that is partly local takes chunks from the prompt's start",
        "class A, offset of a partly local hit", ("shifted_by_n_slots", "unknown"), applies.chunks, kind="addressing",
        scenarios=("replay", "partial")),
    FaultInfo("stale_last_object", "the last chunk is another prompt's",
        "class B and D, stale object under the last key", ("stale", "unknown"), applies.other_prompts, kind="identity"),
    FaultInfo("layer_of_load_before", "one layer is that of the prompt that was loaded before",
        "class D, a layer's key without its prompt", ("stale", "unknown"), applies.other_prompts, kind="identity"),
)  # fmt: skip
LIVES = (
    FaultInfo("worn_out_at_load_2", "a chunk's second load finds other bytes", "class B, freed by its first reader",
        ("zeros",), applies.always, kind="lifetime"),
    FaultInfo("worn_out_at_load_3", "a chunk's third load finds other bytes", "class B, references counted one short",
        ("zeros",), applies.always, kind="lifetime", scenarios=("replay", "preemption", "crowd")),
    FaultInfo("stored_unheld", "chunks are read four requests late, from blocks that nobody holds",
        "class B, a store reads blocks that are used again", ("not_written", "stale", "zeros", "unknown"),
        applies.always, kind="lifetime", scenarios=("replay",)),
    FaultInfo("blocks_kept", "blocks of requests that have ended are not given back",
        "class B, a store that never reports its end", ("unknown",), applies.no_overlap, kind="lifetime",
        scenarios=("replay", "arms"), checks=("freed",)),
    FaultInfo("stray_write", "a load writes over the first block of the request loaded before",
        "class B, a block table of somebody else", ("stale", "unknown", "shifted_by_n_slots"), applies.other_prompts,
        kind="damage to others"),
    FaultInfo("stray_tail", "a load writes over the last block of the request loaded before",
        "class B, a copy that starts one entry early", ("stale", "unknown", "shifted_by_n_slots"),
        applies.other_prompts, kind="damage to others"),
    FaultInfo("stray_bit", "a load flips one bit of one layer of the request loaded before",
        "class B, a write past a buffer's end", ("bit_flips", "reinterpreted", "unknown"), applies.other_prompts,
        kind="damage to others"),
    FaultInfo("store_strays", "a store zeroes a block of the prompt stored before",
        "class B, a buffer cleared by its former owner's number", ("zeros", "unknown"), applies.always,
        kind="damage to others"),
)  # fmt: skip
ANSWERS = (
    *(
        FaultInfo(f"spoilt_at_token_{at}", f"at output token {at} the first block has keys for values",
            "class B, blocks of a running request written", ("kv_swapped", "unknown"), applies.answer(at),
            kind="generated tokens")
        for at in (2, 3, 8, 12)
    ),
    FaultInfo("end_spoilt_at_token_2", "at output token 2 the last block of the prompt has keys for values",
        "class B, a load that goes on under an answer", ("kv_swapped", "unknown"), applies.answer(2),
        kind="generated tokens"),
    FaultInfo("answer_lost_at_token_3", "at output token 3 the KV of the first one is zeroed",
        "class B, a block cleared that is in use", ("unknown",), applies.answer(3), kind="generated tokens"),
)  # fmt: skip
RANKS = (
    FaultInfo("other_ranks_share", "every rank loads the share of the next one", "class A, ranks counted otherwise",
        ("heads_permuted", "unknown"), applies.ranks, kind="rank"),
    FaultInfo("first_ranks_share", "every rank loads the first one's share", "class D, a key without the rank",
        ("heads_permuted", "unknown"), applies.ranks, kind="rank"),
    FaultInfo("last_rank_never_loads", "the last rank reports its load and writes nothing",
        "class C, one of several answers that is not awaited", ("not_written",), applies.ranks, kind="rank"),
    FaultInfo("last_rank_swallows", "the last rank's share vanished, and the load is reported good",
        "class C, one of several failures swallowed", ("not_written", "truncated_tail"), applies.ranks, kind="rank"),
    FaultInfo("last_rank_stale", "the last rank's share of the first chunk is another prompt's",
        "class B and D, shares of two stores in one group", ("stale", "unknown"),
        applies.both(applies.ranks, applies.other_prompts), kind="rank"),
    FaultInfo("last_rank_permutes", "heads of the last rank are rotated by one", "class A, heads split otherwise",
        ("heads_permuted",), applies.both(applies.ranks, applies.heads), kind="rank"),
)  # fmt: skip
ALL = (*PARTIAL, *LOST, *PLACES, *LIVES, *ANSWERS, *RANKS)
