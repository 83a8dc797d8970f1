// The constants of an AdamW update, for the operator in adamw.cc and its kernels.
#pragma once

namespace attune {

struct AdamWRule {
  float shrink;  // 1 − lr·λ
  float beta1, fresh1;  // β₁ and 1 − β₁
  float beta2, fresh2;
  float correction2;  // 1 / √(1 − β₂ᵗ)
  float eps;
  float rate;  // lr / (1 − β₁ᵗ)
};

}  // namespace attune
