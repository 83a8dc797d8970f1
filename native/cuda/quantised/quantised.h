// The arguments of quantised.cu and quantised_product.cu: plain pointers, so that nvcc sees nothing of torch.
#pragma once
#include <cuda_runtime_api.h>

#include "cuda/raw.h"

namespace attune {

/** One part of a matrix (native/cpu/quantised/rows.h). */
struct DequantiseArgs {
  const void *codes, *scales;
  const float *levels, *nested, *offset, *map;  // of 4 bits; the last three with nested maxima, else null
  void* out;  // [outputs, inputs]
  int64_t outputs, inputs, block;
};

void launchDequantise(Kind kind, bool four, const DequantiseArgs& args, cudaStream_t stream);

constexpr int kColumnsApart = 64;  // columns of x that products with x in 8 bits leave in bf16
constexpr int kMostRoundedInputs = 32768, kMostRoundedRows = 1 << 22;

/**
 * x[rows, inputs] in bf16 becomes codes of 8 bits with a scale for each row, but for `chosen` columns, which are copied to `apart`; the same
 * columns of the matrix that x is multiplied with are copied to `weightsApart`.
 */
struct RoundedRows {
  const void* x;
  int64_t rows, inputs;  // inputs: a multiple of 16, more than kColumnsApart
  unsigned* maxima;  // [inputs], zeros
  int* chosen;  // [kColumnsApart]
  unsigned short* stays;  // [inputs]: 0 where a column is chosen, else all ones
  signed char* codes;  // [rows, inputs]
  float* scales;  // [rows]
  void* apart;  // [rows, kColumnsApart]
  const signed char* weights;  // [outputs, inputs]
  int64_t outputs;
  void* weightsApart;  // bf16, [outputs, kColumnsApart]
};

void launchRoundRows(const RoundedRows& args, cudaStream_t stream);

constexpr int kMostParts = 4;
constexpr int kSharedOfFourBits = 72;  // as kSharedOfStep (numbers.cuh), for 9 to 16 rows: 164 of 228 KB

/** `product.weight` is null: the matrix is in parts, below one another. */
struct QuantisedProductArgs {
  ProductArgs product;
  bool four;
  int parts, block;
  const float *levels, *map;  // as above
  struct Part {
    const void *codes, *scales;
    const float *nested, *offset;
    int rows;
  } part[kMostParts];
};

bool quantisedProductFits(int64_t rows, int64_t inputs, int64_t outputs, bool four, int64_t block);
void launchQuantisedProduct(const QuantisedProductArgs& args, cudaStream_t stream);

/** For 4 bits and at most eight rows, where parts and outputs are whole tiles: what launchQuantisedProduct gives, to the bit, sooner. */
bool fourBitProductFits(const QuantisedProductArgs& args);
void launchFourBitProduct(const QuantisedProductArgs& args, cudaStream_t stream);
/** The same for 4 bits and 9 to 16 rows, where the matrix is large and has gates. */
bool fourBitRowsFit(const QuantisedProductArgs& args);
void launchFourBitRows(const QuantisedProductArgs& args, cudaStream_t stream);
/** The same for 8 bits and at most 16 rows, where the matrix is large. */
bool eightBitProductFits(const QuantisedProductArgs& args);
void launchEightBitProduct(const QuantisedProductArgs& args, cudaStream_t stream);

}  // namespace attune
