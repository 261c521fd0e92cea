"""What the assertions of GPU kernels check, by the kernel (a GPU core has no text of the assertion) or by the text (a log has no more)."""

from __future__ import annotations

import re
from typing import Optional

import msgspec


class Check(msgspec.Struct, frozen=True):
    """What kernels assert, and code that tests it before the launch."""

    kernel: str
    """Of the mangled name."""
    assertion: str
    what: str
    fixes: tuple[str, ...] = ()


_INDEX = "assert index.min() >= 0 and index.max() < table.size(0), (index.min(), index.max(), table.size())"

# From torch's aten/src/ATen/native/cuda: Loss.cu, NLLLoss2d.cu, MultiMarginLoss.cu, IndexKernelUtils.cu, Indexing.cu,
# ScatterGatherKernel.cu, EmbeddingBag.cu, MultinomialKernel.cu, TensorCompare.cu, DistributionBernoulli.cu, Repeat.cu, and what
# torch.compile generates. The first that matches counts.
_CHECKS = (
    Check(
        r"nll_loss|[mM]ulti_?[mM]argin|ClassNLLCriterion",
        r"n_classes|^t >= 0 && t <|target_k|target index",
        "each label is between 0 and the number of classes - 1",
        (
            "assert labels.min() >= 0 and labels.max() < num_classes, (labels.min(), labels.max())",
            "labels = labels - 1   # if the classes are counted from 1",
        ),
    ),
    Check(
        r"binary_cross_entropy",
        r"input_val >= zero && input_val <= one|input >= 0\.? && \*?input <= 1",
        "each input is between 0 and 1",
        ("assert (x >= 0).all() and (x <= 1).all()   # after a sigmoid",),
    ),
    Check(
        r"[mM]ultinomial",
        r"probability tensor contains|multinomial distribution|cumdist\[|_isnan\(val\)|^val >= 0",
        "probabilities are finite and not negative, and their sum is not 0",
        (
            "assert torch.isfinite(logits).all(), logits   # before the softmax; a loss or weight that became nan shows up here",
            "logits = logits.float()   # half precision overflows to inf",
        ),
    ),
    Check(
        r"bernoulli",
        r"0 <= p\d? && p\d? <= 1",
        "each probability is between 0 and 1",
        ("assert (p >= 0).all() and (p <= 1).all(), (p.min(), p.max())",),
    ),
    Check(
        r"repeat_interleave",
        r"repeats? can not be negative|repeats? >= 0",
        "no count of repetitions is negative",
        ("assert (repeats >= 0).all()",),
    ),
    Check(
        r"indexSelect|vectorized_gather",
        r"vectorized gather kernel|srcIndex < srcSelectDimSize",
        "each index is within the size of the indexed dimension, or of the embedding",
        (_INDEX,),
    ),
    Check(r"EmbeddingBag|embedding_", r"input_idx|embedding", "each index is within the size of the embedding", (_INDEX,)),
    Check(
        r"index_put_kernel|index_kernel|gpu_index_kernel|take_put|scatter_gather|triton_\w+_fused_\w*(?:index|gather|embedding|scatter)",
        r"out of bounds|dstIndex < dstAddDimSize|idx_dim|< ?sizes?\b|idx >= 0 && idx <",
        "each index is within the size of the indexed dimension",
        (_INDEX,),
    ),
)


def by_kernel(mangled: str) -> Optional[Check]:
    """What a kernel asserts; None if it is not known."""
    return next((check for check in _CHECKS if re.search(check.kernel, mangled)), None)


def by_assertion(text: str) -> Optional[Check]:
    """What an assertion checks, by its text; None if it is not known."""
    return next((check for check in _CHECKS if re.search(check.assertion, text)), None)
