// narrow_product.cu: y = x·Wᵀ for up to 32 rows.
#pragma once
#include "cuda/packed/pack.h"
#include "cuda/wide/wide_product.h"

namespace attune {

constexpr int64_t kMostPackedRows = 16;  // for which there are kernels that read packed weights

/** As those of wide_product.h, but that sums of squares are [rows, narrowProductParts]. */
bool narrowProductFits(Kind kind, const WideProductArgs& args);
int64_t narrowProductParts(const WideProductArgs& args);
/** How kernels for so many rows want a packed weight, with no room for it yet; no rows where they read none. `args` fit. */
PackArgs narrowPacking(const WideProductArgs& args);
void launchNarrowProduct(const WideProductArgs& args, cudaStream_t stream);

}  // namespace attune
