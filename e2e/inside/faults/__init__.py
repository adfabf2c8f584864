"""Planted faults by name: a new one is one class and one line here (and one in ``e2e/faults/catalogue.py``)."""

from __future__ import annotations

from e2e.inside.faults.addressing import (
    AnswerOneLate,
    AxesSwappedIndex,
    LayerNeverLoaded,
    OneSlotOff,
    PhysicalViewOmitted,
    StepSlotsStored,
    StoredFromHit,
    TailDropped,
    TokenFirstView,
    WriteIntoCopy,
)
from e2e.inside.faults.answer import (
    AnswerLostAtToken3,
    EndSpoiltAtToken2,
    SpoiltAtToken2,
    SpoiltAtToken3,
    SpoiltAtToken8,
    SpoiltAtToken12,
)
from e2e.inside.faults.base import Fault, Placing, Put, Scene
from e2e.inside.faults.content import (
    BitFlip,
    HeadsPermuted,
    KvSwapped,
    LayerOrderShifted,
    NeighbourLayer,
    ReadAsFp16,
    ScaleLost,
    ZeroLayer,
)
from e2e.inside.faults.crowded import FormerBlocks, LoadsDropped, LoadsExchanged, ResumedNotLoaded
from e2e.inside.faults.decay import BlocksKept, StoredUnheld, WornOutAtSecondLoad, WornOutAtThirdLoad
from e2e.inside.faults.elsewhere import HeadsPermutedBothWays, LayoutNotInKey, RegionNotKept
from e2e.inside.faults.failing import ChecksumIgnored, FailureKeptQuiet, LastBlockReported
from e2e.inside.faults.identity import (
    DtypeNotInKey,
    EqualLengthPrompt,
    LongerPromptTail,
    LoraNotInKey,
    OneChunkOff,
    SaltNotInKey,
    StaleObject,
    Unchained,
    WeightsNotInKey,
)
from e2e.inside.faults.lost import (
    EveryChunkVanished,
    FirstLayerNeverLoaded,
    HalfTheLayersZeroed,
    LastChunkVanished,
    LastLayerNeverLoaded,
    ShortRead,
    ValuesZeroed,
)
from e2e.inside.faults.partial import (
    BlockEndsDropped,
    FirstChunkCut,
    FirstTokenDropped,
    LastBlockDropped,
    LastTokenDropped,
    TailRepeated,
    TailReversed,
)
from e2e.inside.faults.places import (
    BlocksReversed,
    ChunksExchanged,
    FirstHeadEverywhere,
    FirstLayerNeighbour,
    HalvesSwapped,
    LastLayerNeighbour,
    LayerOfLoadBefore,
    LocalPartNotSkipped,
    OneBlockOff,
    OneSlotBack,
    StaleLastObject,
)
from e2e.inside.faults.ranks import (
    FirstRanksShare,
    LastRankNeverLoads,
    LastRankPermutes,
    LastRankStale,
    LastRankSwallows,
    OtherRanksShare,
)
from e2e.inside.faults.rare import RareBitFlip
from e2e.inside.faults.room import EvictedAnnounced, RefusedAnnounced, RefusedCut, RefusedOverwrites, SlotReused
from e2e.inside.faults.stray import StoreStrays, StrayBit, StrayTail, StrayWrite
from e2e.inside.faults.timing import (
    AnnouncedEarly,
    FailedLoadSwallowed,
    FreedWhileLoading,
    OverlapNotWaited,
    ReadWhenStored,
    StoreBeforeForward,
    StoreWritesCache,
)

__all__ = ["NAMES", "NONE", "Fault", "Placing", "Put", "Scene", "get"]

NONE = Fault()
_TABLE: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        LastTokenDropped(), FirstTokenDropped(), LastBlockDropped(), BlockEndsDropped(), FirstChunkCut(),
        TailReversed(), TailRepeated(), LastChunkVanished(), EveryChunkVanished(), FirstLayerNeverLoaded(),
        LastLayerNeverLoaded(), ValuesZeroed(), HalfTheLayersZeroed(), ShortRead(), FirstHeadEverywhere(),
        HalvesSwapped(), FirstLayerNeighbour(), LastLayerNeighbour(), OneSlotBack(), OneBlockOff(), BlocksReversed(),
        ChunksExchanged(), LocalPartNotSkipped(), StaleLastObject(), LayerOfLoadBefore(), WornOutAtSecondLoad(),
        WornOutAtThirdLoad(), StrayWrite(), StrayTail(), StrayBit(), StoreStrays(), OtherRanksShare(),
        SpoiltAtToken2(), SpoiltAtToken3(), SpoiltAtToken8(), SpoiltAtToken12(), EndSpoiltAtToken2(),
        AnswerLostAtToken3(), FirstRanksShare(), LastRankNeverLoads(), LastRankSwallows(), LastRankStale(),
        LastRankPermutes(), StoredUnheld(), BlocksKept(),
        PhysicalViewOmitted(), TokenFirstView(), AxesSwappedIndex(), WriteIntoCopy(), OneSlotOff(), TailDropped(),
        LayerNeverLoaded(), KvSwapped(), NeighbourLayer(), LayerOrderShifted(), HeadsPermuted(), BitFlip(),
        ReadAsFp16(), ScaleLost(), ZeroLayer(), OneChunkOff(), StaleObject(), EqualLengthPrompt(), OverlapNotWaited(),
        StoreBeforeForward(), FailedLoadSwallowed(), StoreWritesCache(), LoadsExchanged(), FormerBlocks(),
        RegionNotKept(), LayoutNotInKey(), HeadsPermutedBothWays(),
        LongerPromptTail(), Unchained(), AnnouncedEarly(), FreedWhileLoading(), ReadWhenStored(), StepSlotsStored(),
        AnswerOneLate(), StoredFromHit(),
        SlotReused(), RefusedAnnounced(), LoadsDropped(), ResumedNotLoaded(),
        EvictedAnnounced(), RefusedCut(), RefusedOverwrites(),
        SaltNotInKey(), LoraNotInKey(), WeightsNotInKey(), DtypeNotInKey(),
        FailureKeptQuiet(), ChecksumIgnored(), LastBlockReported(), RareBitFlip(),
    )
}  # fmt: skip
NAMES = tuple(_TABLE)
#: Faults that can be planted around any connector, on pages that it has loaded.
AROUND_ANY = tuple(name for name, fault in _TABLE.items() if fault.around_any)


def get(name: str) -> Fault:
    """The fault of this name; for the empty one a fault that does nothing. ValueError for an unknown name."""
    if not name:
        return NONE
    if name not in _TABLE:
        raise ValueError(f"fault {name!r} is unknown; use one of {', '.join(sorted(NAMES))}.")
    return _TABLE[name]
