"""Every planted fault that the embedded connector knows, by its name in ``e2e/inside/faults`` (a test compares)."""

from __future__ import annotations

from e2e.base.errors import SettingsError
from e2e.base.fault import parted
from e2e.base.spelling import meant
from e2e.faults import applies, variations
from e2e.faults.info import FaultInfo

#: Stories in which a load fails.
BROKEN = ("broken_server",)

FAULTS: dict[str, FaultInfo] = {
    fault.name: fault
    for fault in (
        *variations.ALL,
        FaultInfo(
            "physical_view_omitted", "the kernel gets the tensor as registered, not in physical order",
            "class A, maru 86: head count and page size swapped", ("axes_swapped", "not_written"),
            applies.kernel_on("NHD", "HND"), kind="addressing"),
        FaultInfo(
            "token_first_view", "the kernel gets the token-first view of the original report",
            "class A, maru 86 as reported", ("axes_swapped", "not_written"), applies.kernel_on("HND", "HND"),
            kind="addressing"),
        FaultInfo(
            "axes_swapped_index", "index placement takes a page for [heads, tokens]", "class A, axes swapped",
            ("axes_swapped",), applies.index_axes, kind="addressing"),
        FaultInfo(
            "write_into_copy", "a reshape of a strided view is a copy, and that is written", "class A, lost writes",
            ("not_written",), applies.strided, kind="addressing"),
        FaultInfo("kv_swapped", "keys where values belong", "class A, LMCache 4463", ("kv_swapped",), applies.always,
                  around_any=True, kind="addressing"),
        FaultInfo("neighbour_layer", "one layer gets the next one's bytes", "class A, wrong pitched-copy offset",
                  ("neighbour_layer",), applies.layers, kind="addressing"),
        FaultInfo("layer_order_shifted", "every layer gets the one before it",
                  "class A, stage-local layer index under pipeline parallelism", ("neighbour_layer",), applies.layers,
                  kind="addressing"),
        FaultInfo("one_slot_off", "every token lies one slot too early", "class A, slot mapping off by one",
                  ("shifted_by_n_slots",), applies.always, kind="addressing"),
        FaultInfo("one_chunk_off", "every chunk lies one chunk too late", "class A, offset counted in chunks",
                  ("shifted_by_n_slots",), applies.chunks, kind="addressing"),
        FaultInfo("tail_dropped", "the last half of the last chunk is not written",
                  "class E, tail rules of writer and reader differ", ("truncated_tail",), applies.always,
                  kind="partial unit"),
        FaultInfo("layer_never_loaded", "one layer is reported loaded, and is not", "class C, one layer missing",
                  ("not_written",), applies.layers, kind="failed load"),
        FaultInfo("overlap_not_waited", "an overlapped load is reported complete and never waited for",
                  "class B, load reported done before the copy landed", ("not_written",), applies.overlap,
                  kind="lifetime"),
        FaultInfo("stale_object", "the first chunk is another prompt's", "class B and D, stale object under the key",
                  ("stale",), applies.other_prompts, kind="identity"),
        FaultInfo("equal_length_prompt", "every chunk is that of a prompt of equal length up to there",
                  "class D, KV of another request served", ("stale",), applies.other_prompts, kind="identity"),
        FaultInfo("heads_permuted", "heads rotated by one", "class A, heads permuted across ranks",
                  ("heads_permuted",), applies.heads, around_any=True, kind="addressing"),
        FaultInfo("bit_flip", "the lowest bit of one element of one layer", "memory or link error",
                  ("bit_flips",), applies.always, around_any=True, kind="failed load"),
        FaultInfo("read_as_fp16", "bfloat16 bytes read as float16", "class A, dtype of the wrong configuration",
                  ("reinterpreted",), applies.always, around_any=True, kind="addressing"),
        FaultInfo("scale_lost", "one layer comes back at half its size", "class A, vLLM 48412",
                  ("reinterpreted",), applies.always, around_any=True, kind="addressing"),
        FaultInfo("zero_layer", "one layer comes back as zeros", "class C, a transfer that never wrote its buffer",
                  ("zeros",), applies.always, around_any=True, kind="failed load"),
        FaultInfo("store_before_forward", "a chunk is stored before its forward wrote the blocks",
                  "class B, store races compute", ("not_written", "zeros", "stale", "unknown"), applies.always,
                  kind="lifetime"),
        FaultInfo("failed_load_swallowed", "the first chunk vanished, and the load is reported good",
                  "class C, object vanished between lookup and load", ("not_written", "truncated_tail"), applies.always,
                  kind="failed load"),
        FaultInfo("store_writes_cache", "storing changes the live cache",
                  "class A, vLLM 48412: the first answer is already wrong",
                  ("bit_flips", "reinterpreted", "unknown"), applies.always, kind="damage to others"),
        FaultInfo("loads_exchanged", "two loads of one step go into each other's blocks",
                  "class A, one slot mapping for a whole batch", ("stale", "unknown"), applies.always,
                  scenarios=("crowd", "preemption"), kind="addressing"),
        FaultInfo("former_blocks", "a resumed request loads into the blocks that it had before",
                  "class B, a block table that nobody renewed", ("shifted_by_n_slots", "not_written", "stale"),
                  applies.always, scenarios=("preemption",), kind="lifetime"),
        FaultInfo("slot_reused", "a slot of the pool is used again, and its old key still leads to it",
                  "class D, an entry that outlives its bytes", ("stale", "unknown"), applies.always,
                  scenarios=("eviction",), kind="identity"),
        FaultInfo("refused_announced", "an object that the pool refused is announced as stored",
                  "class C, a refusal that nobody heeds", ("stale", "unknown"), applies.always,
                  scenarios=("full",), kind="failed load"),
        FaultInfo("loads_dropped", "of the loads of a step only the first is done",
                  "class C, one completion for a batch", ("not_written", "unknown"), applies.always,
                  scenarios=("crowd",), kind="failed load"),
        FaultInfo("resumed_not_loaded", "a resumed request is taken for loaded",
                  "class B, a mark that nobody took away", ("shifted_by_n_slots", "not_written", "stale", "unknown"),
                  applies.always, scenarios=("preemption",), kind="lifetime"),
        FaultInfo("evicted_announced", "what was evicted is still announced, and a load of it brings zeros",
                  "class C, a miss that is taken for a hit", ("zeros",), applies.always, scenarios=("eviction",),
                  kind="failed load"),
        FaultInfo("refused_cut", "an object for which there is no room is stored without its second half",
                  "class E, what fits is taken for all", ("truncated_tail", "zeros", "unknown"), applies.always,
                  scenarios=("full",), kind="partial unit"),
        FaultInfo("refused_overwrites", "an object for which there is no room lands on another one, whose key stays",
                  "class A, a write past the end", ("stale", "shifted_by_n_slots", "unknown"), applies.always,
                  scenarios=("full",), kind="damage to others"),
        FaultInfo("region_not_kept", "stored chunks lie in the engine's own memory, the index tells everybody of them",
                  "class B, an index entry without its bytes", ("zeros", "unknown"), applies.always,
                  scenarios=("restart", "second"), kind="lifetime"),
        FaultInfo("layout_not_in_key", "pages are stored as they lie, under a key without their layout",
                  "class D, another engine's layout", ("axes_swapped", "unknown"), applies.layouts,
                  scenarios=("second",), kind="identity"),
        FaultInfo("heads_permuted_both_ways", "index placement rotates heads when it stores and back when it loads",
                  "class A, a store and a load that share one mistake", ("heads_permuted",), applies.heads,
                  scenarios=("cross",), kind="addressing"),
        FaultInfo("salt_not_in_key", "keys know no salt", "class D, another tenant's KV", ("unknown",), applies.always,
                  scenarios=("identity",), kind="identity", checks=("isolation",)),
        FaultInfo("lora_not_in_key", "keys know no LoRA adapter", "class D, the model's KV for its adapter",
                  ("unknown", "stale"), applies.always, scenarios=("identity",), kind="identity"),
        FaultInfo("weights_not_in_key", "keys know the shape of a model only", "class D, another model's KV",
                  ("unknown", "stale"), applies.always, scenarios=("identity",), kind="identity"),
        FaultInfo("dtype_not_in_key", "keys know no dtype", "class D, bytes of another dtype",
                  ("unknown", "reinterpreted"), applies.two_bytes, scenarios=("identity",), kind="identity"),
        FaultInfo("longer_prompt_tail", "a prompt found by its first chunk gets the end of the longest one that has it",
                  "class D, the tail of a longer prompt served to a shorter one", ("stale", "unknown"), applies.always,
                  scenarios=("partial",), kind="identity"),
        FaultInfo("unchained", "a chunk's key is a hash of its own tokens only",
                  "class D, the same words behind another beginning", ("stale", "unknown"), applies.always,
                  scenarios=("partial",), kind="identity"),
        FaultInfo("stored_from_hit", "what a request computes behind a hit is stored from the blocks at its beginning",
                  "class A, chunks counted from what was computed", ("stale", "unknown"), applies.always,
                  scenarios=("partial",), kind="addressing"),
        FaultInfo("answer_one_late", "KV of generated tokens is stored one position late",
                  "class A, generated tokens one off", ("shifted_by_n_slots", "unknown"), applies.always,
                  scenarios=("turns",), kind="generated tokens"),
        FaultInfo("step_slots_stored", "a chunk of several steps is read from where the last of them began",
                  "class A, Maru of July 2026", ("shifted_by_n_slots", "unknown"), applies.always,
                  scenarios=("long_prompt",), kind="partial unit"),
        FaultInfo("announced_early", "a chunk can be found before its bytes are there, and nobody verifies them",
                  "class B, an object readable before it is whole", ("zeros", "stale", "unknown"), applies.always,
                  scenarios=("zero_delay", "struck"), kind="lifetime"),
        FaultInfo("freed_while_loading", "a load whose request has ended is reported done, and writes on",
                  "class B, blocks freed while a load writes", ("stale", "unknown"), applies.always,
                  scenarios=("abort",), kind="damage to others"),
        FaultInfo("failure_kept_quiet", "an object that can't be read is not written, and the load is reported good",
                  "class C, a failed load answered with HTTP 200", ("not_written", "truncated_tail", "unknown"),
                  applies.always, scenarios=BROKEN, kind="failed load"),
        FaultInfo("checksum_ignored", "a torn or replaced object is loaded as it is", "class C, bytes of somebody else",
                  ("zeros", "stale", "shifted_by_n_slots", "truncated_tail", "unknown"), applies.always,
                  scenarios=BROKEN, kind="failed load"),
        FaultInfo("last_block_reported", "of a load that failed vLLM is told the last block alone",
                  "class C, a failure that is told in part", ("not_written", "truncated_tail", "unknown"),
                  applies.always, scenarios=BROKEN, kind="failed load"),
        FaultInfo("rare_bit_flip", "one chunk in a hundred comes back with another bit in one layer",
                  "class B, a race that is seldom lost", ("bit_flips",), applies.always, scenarios=("soak",),
                  kind="lifetime"),
    )
}  # fmt: skip


def find(name: str) -> FaultInfo:
    """The fault of this name, whatever rank it names. SettingsError, one sentence, for an unknown one."""
    if (fault := parted(name)[0]) in FAULTS:
        return FAULTS[fault]
    if any(part.strip() in FAULTS for part in name.split(",")):
        raise SettingsError(f"fault {name!r} is no single name; give --fault once for each.")
    close = meant(name, FAULTS)
    cure = f"did you mean {close}?" if close else "use one of the catalogue of faults, such as bit_flip."
    raise SettingsError(f"fault {name!r} is unknown; {cure}")
