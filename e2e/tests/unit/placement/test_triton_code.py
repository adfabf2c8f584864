"""What the Triton kernel compiles to for an H200, without having one."""

from __future__ import annotations

import re

import pytest

triton = pytest.importorskip("triton", reason="triton can't be imported here")


def memory_accesses(*, gather: bool, align: int) -> list[str]:
    """Global loads and stores of the kernel for 8 heads of 32 words of 8 bytes."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from e2e.inside.placement import triton_kernel

    kernel = triton_kernel._compiled()
    constants = {
        "HEADS": 8, "BLOCK_SIZE": 16, "ROW": 32, "ROW_PADDED": 32, "TILE": 64, "ALIGN": align // 8,
        "ALIGN_BYTES": align, "GATHER": gather,
    }  # fmt: skip
    signature = dict.fromkeys(kernel.arg_names, "i64") | dict.fromkeys(constants, "constexpr")
    signature |= {"staged": "*i64", "table": "*i64", "slots": "*i64"}
    aligned = {(0,): [["tt.divisibility", 16]]}  # of table and slots nothing is known
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=aligned)
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["ptx"]
    return re.findall(r"(?:ld|st)\.global\S*", ptx)


@pytest.mark.parametrize("gather", [False, True])
def test_every_access_moves_16_bytes(gather):
    found = memory_accesses(gather=gather, align=16)
    # besides the rows, each thread reads its 8 slots and one entry of the table
    assert found.count("ld.global.b64") == 9
    rows = [access for access in found if access != "ld.global.b64"]
    assert len(rows) == 32
    assert all(access.endswith(".v2.b64") for access in rows)


def test_with_less_alignment_no_access_is_wider_than_allowed():
    found = memory_accesses(gather=False, align=8)
    assert len(found) > 64
    assert not any(".v2" in access for access in found)
