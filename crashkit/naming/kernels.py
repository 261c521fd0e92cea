"""What a GPU kernel is to the person whose program launched it: an operator of torch, a fused kernel, a family of a library's kernels."""

from __future__ import annotations

import re
from math import prod
from typing import Optional

from crashkit.model import GpuKernel
from crashkit.naming.functions import short_function
from crashkit.naming.itanium import demangled, identifiers
from crashkit.regex import regex

_FUSED = regex(r"triton_(?P<kind>poi|red|per|mm|tem|spl|for|unk)_fused_(?P<operators>\w+?)_\d+$")
_TEMPLATE = regex(r"triton_(?:tem_fused_)?(?P<operator>bmm|mm|convolution|flex_attention|addmm)\w*$")

_INTERNAL = regex(r"^(?:__main__::|(?:at::native|at|c10)::(?:\(anonymous\)::)*)")
"""torch's namespaces, and what numba puts before the functions of the script itself."""

# By the kernel's short name. Kernels of torch that check their input, and what asked for them in Python.
_OPERATORS = (
    (r"nll_loss2d_\w+", "nll_loss (cross_entropy of images)"),
    (r"nll_loss_\w+", "nll_loss (cross_entropy)"),
    (r"indexSelect(?:Small|Large)Index", "index_select (embedding)"),
    (r"vectorized_gather_kernel", "index_select (embedding)"),
    (r"index(?:Func|Add)(?:Small|Large)Index\w*", "index_add or index_copy"),
    (r"indexing_backward\w*", "backward of indexing"),
    (r"embedding_(?:backward|renorm|bag)\w*|\w*EmbeddingBag\w*", "embedding"),
    (r"_?scatter_gather_\w+|_?cuda_scatter_gather\w*", "gather or scatter"),
    (r"masked_scatter\w*", "masked_scatter"),
    (r"sampleMultinomial\w*|renormRows\w*", "multinomial"),
    (r"softmax_warp_\w+|cunn_\w*Soft[mM]ax\w*", "softmax"),
    (r"(?:bitonic|radix)Sort\w*|sortKeyValueInplace\w*", "sort"),
    (r"(?:vectorized_)?layer_norm\w*", "layer_norm"),
    (r"batch_norm\w*", "batch_norm"),
    (r"CatArrayBatchedCopy\w*", "cat"),
    (r"fused_dropout\w*|\w*dropout_kernel\w*", "dropout"),
    (r"multi_tensor_apply_kernel", "an optimizer's step over many tensors"),
    (r"distribution_\w+", "random numbers"),
    (r"reduce_kernel", "a reduction"),
    (r"index_elementwise_kernel", "indexing"),
    (r"(?:vectorized_|unrolled_|legacy_)?elementwise_kernel\w*", "an elementwise operator"),
)
# In the template arguments of a general kernel: what it computes.
_WITHIN = (
    (r"index_put_kernel_impl|index_put\w*", "x[index] = value (index_put)"),
    (r"index_kernel_impl|index_kernel", "x[index] (index)"),
    (r"gpu_index_kernel", "indexing"),
    (r"take_\w*kernel\w*", "take"),
    (r"direct_copy_kernel\w*|\w*copy_kernel\w*", "copy"),
    (r"sum_functor", "sum"),
    (r"mean_functor|MeanOps", "mean"),
    (r"ArgMaxOps|ArgMinOps|MaxOps|MinOps", "max or min"),
)
_WITHIN_NAMED = regex(
    r"CUDAFunctor(?:OnSelf|OnOther)?_(?P<self>\w+)|(?P<functor>[A-Z]\w{0,200}?)Functor(?:_\w+)?|(?P<kernel>\w{1,200}?)_kernel(?:_cuda|_impl)?\w*"
)
_LIBRARIES = (
    (r"(?:void )?cutlass\w*|.*\bcutlass::.*", "matrix product (CUTLASS)"),
    (r".*(?:gemm|gemv|GemmUniversal|splitKreduce|gemmk1|gemmSN).*", "matrix product (cuBLAS)"),
    (r"nvjet_\w+", "matrix product (cuBLAS)"),
    (
        r".*(?:cudnn|implicit_convolve|convolve_\w+|winograd|nchwToNhwc|nhwcToNchw|bn_fw|bn_bw|dgrad|wgrad|fprop).*",
        "convolution or normalisation (cuDNN)",
    ),
    (r".*(?:elemWiseRNNcell|RNN_blockPersist|LSTM_).*", "recurrent layer (cuDNN)"),
    (r"nccl(?:Dev)?Kernel\w*|ncclSymk\w*|ncclKernel_\w+", "collective operation (NCCL)"),
    (r".*(?:flash_fwd|flash_bwd|fmha_|flash::).*", "attention (FlashAttention)"),
    (r"cupy_\w+", "operation of CuPy"),
    (r".*\bcub::.*", "sort, scan or reduction (CUB)"),
    (r".*\bthrust::.*", "algorithm of Thrust"),
)


def short_kernel(mangled: str) -> str:
    """The kernel's name as shown: `at::native::reduce_kernel`, without template arguments."""
    return short_function(demangled(mangled)).replace("<…>", "")


def brief_kernel(kernel: str) -> str:
    """A short kernel name without the namespaces of torch's internals and of the script: `reduce_kernel`."""
    return _INTERNAL.sub("", kernel)


def known_as(mangled: str) -> Optional[str]:
    """What the kernel is to its user, in a few words; None if it is a kernel of the user's own, or of nobody known."""
    fused = _FUSED.match(mangled)
    if fused:
        return f"torch.compile: {fused['operators'].strip('_').replace('_', ' ')}"
    template = _TEMPLATE.match(mangled)
    if template:
        return f"torch.compile: {template['operator']}"
    short = short_kernel(mangled)
    if short.startswith(("at::", "(anonymous)::", "c10::", "torch::")) or "at6native" in mangled:
        return _operator(short.rpartition("::")[2], mangled)
    return next((name for pattern, name in _LIBRARIES if re.fullmatch(pattern, short)), None)


def _operator(name: str, mangled: str) -> Optional[str]:
    operator = next((known for pattern, known in _OPERATORS if re.fullmatch(pattern, name)), None)
    if operator is None or operator.startswith(("a ", "an e", "indexing")):
        inside = _inside(mangled, name)
        return f"torch: {inside}" if inside else f"torch: {operator}" if operator else None
    return f"torch: {operator}"


def _inside(mangled: str, name: str) -> Optional[str]:
    """The operator, by the functor or function that a general kernel was made from."""
    parts = [part for part in identifiers(mangled) if part != name]
    for pattern, known in _WITHIN:
        if any(re.fullmatch(pattern, part) for part in parts):
            return known
    for part in parts:
        match = _WITHIN_NAMED.fullmatch(part)
        if match and not part.startswith(("gpu_kernel", "opmath_gpu", "gpu_", "Binary", "BUnary", "AUnary", "Unary")):
            return str(next(filter(None, match.groups()))).strip("_").lower()
    return None


def left_blocks(kernel: GpuKernel) -> int:
    """How many blocks of its grid are not on the GPU: they have ended, or, unless all must be there at once, not begun."""
    return max(0, prod(kernel.grid) - kernel.blocks) if kernel.grid and kernel.blocks is not None else 0
