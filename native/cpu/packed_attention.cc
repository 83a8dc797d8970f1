// Attention over packed sequences in f32 on the CPU. One task is the forward or backward of one kv head of one family.
//
// A family is a sequence and those that continue it (it is their prefix). Its keys and values are laid out once for the panel products. A
// continuing member's keys come after the prefix's, so its queries see the two as one sequence. One task sums all gradients of a family's
// kv head in the order of its members: this needs no atomics, and the sums do not depend on the number of threads.
//
// Queries are processed in tiles and keys in blocks; panels that the mask hides entirely are skipped.
#include "ops/packed_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>

#include "cpu/kernels.h"
#include "cpu/panels.h"

namespace attune {
namespace {

using at::Tensor;

constexpr int64_t kTileRows = 32;
constexpr int64_t kBlockKeys = 128;  // keys per block; a whole number of panels

struct Geometry {
  int64_t heads, groups, share, size, padded;  // padded: the head size in whole vectors
  float scale;
  int64_t window;
  const float* bias;  // [H, biasLength] or null
  int64_t biasLength;
};

Geometry geometryOf(const Tensor& q, const Tensor& k, const Tensor& bias, const PackedCall& call) {
  Geometry g{
      q.size(1), k.size(1), q.size(1) / k.size(1), q.size(2), roundUp(q.size(2), kWidth), static_cast<float>(call.scale), call.window,
      nullptr,   0};
  if (bias.defined()) {
    g.bias = bias.data_ptr<float>();
    g.biasLength = bias.size(1);
  }
  return g;
}

struct Member {
  int64_t start, rows;  // in the packed order
};

struct Family {
  std::vector<Member> members;
  int64_t shared = 0;  // rows of the first member, if others continue it
  int64_t longest = 0;  // most keys that a query may see
  int64_t cost = 0;
};

std::vector<Family> familiesOf(const PackedCall& call) {
  const size_t sequences = call.starts.size() - 1;
  std::vector<Family> families;
  std::vector<size_t> familyOf(sequences);
  const auto member = [&](size_t s) { return Member{call.starts[s], call.starts[s + 1] - call.starts[s]}; };
  const auto continues = [&](size_t s) { return !call.prefixes.empty() && call.prefixes[s] >= 0; };
  for (size_t s = 0; s < sequences; s++) {
    if (continues(s)) continue;
    familyOf[s] = families.size();
    families.push_back({{member(s)}});
  }
  for (size_t s = 0; s < sequences; s++) {
    if (continues(s)) families[familyOf[call.prefixes[s]]].members.push_back(member(s));
  }
  for (Family& family : families) {
    if (family.members.size() > 1) family.shared = family.members[0].rows;
    for (size_t m = 0; m < family.members.size(); m++) {
      const int64_t rows = family.members[m].rows, before = m == 0 ? 0 : family.shared;
      family.longest = std::max(family.longest, before + rows);
      family.cost += rows * (2 * before + rows);
    }
  }
  // the most expensive first, so that no long task is left for the end
  std::stable_sort(families.begin(), families.end(), [](const Family& a, const Family& b) { return a.cost > b.cost; });
  return families;
}

// Runs every (family, kv head) on whichever thread is free. `make` creates a thread's worker.
template <typename Make>
void eachTask(const std::vector<Family>& families, int64_t groups, Make make) {
  const int64_t tasks = static_cast<int64_t>(families.size()) * groups;
  int64_t work = 0;
  for (const Family& family : families) work += family.cost;
  const int64_t workers = work < 4096 ? 1 : std::min<int64_t>(at::get_num_threads(), tasks);
  std::atomic<int64_t> next{0};
  at::parallel_for(0, workers, 1, [&](int64_t, int64_t) {
    auto worker = make();
    for (int64_t task = next++; task < tasks; task = next++) worker.run(families[task / groups], task % groups);
  });
}

inline void grow(std::vector<float>& buffer, int64_t size) {
  if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(size);
}

// Rows [start, start + count) of one head of x[N, heads, D] → to[count × padded].
void copyRows(const float* x, int64_t start, int64_t count, int64_t head, int64_t heads, const Geometry& g, float* to) {
  for (int64_t i = 0; i < count; i++) std::copy_n(x + ((start + i) * heads + head) * g.size, g.size, to + i * g.padded);
}

void copyBack(const float* from, int64_t start, int64_t count, int64_t head, int64_t heads, const Geometry& g, float* x) {
  for (int64_t i = 0; i < count; i++) std::copy_n(from + i * g.padded, g.size, x + ((start + i) * heads + head) * g.size);
}

// copyRows transposed, to keys [first, first + count): panels of kPanelWidth keys, each [D × kPanelWidth].
void copyPanels(const float* x, int64_t start, int64_t count, int64_t head, int64_t heads, const Geometry& g, int64_t first, float* to) {
  for (int64_t i = 0; i < count; i++) {
    const float* row = x + ((start + i) * heads + head) * g.size;
    const int64_t key = first + i;
    float* column = to + key / kPanelWidth * (g.size * kPanelWidth) + key % kPanelWidth;
    for (int64_t d = 0; d < g.size; d++) column[d * kPanelWidth] = row[d];
  }
}

struct Range {
  int64_t from, to;
};

// The keys that the query at `place` may see.
inline Range visible(int64_t place, const Geometry& g) {
  return {g.window > 0 ? std::max<int64_t>(0, place - g.window + 1) : 0, place + 1};
}

// The keys of a block that any of the queries at [place, place + rows) may see.
inline Range visible(int64_t place, int64_t rows, const Geometry& g, Range block) {
  return {std::max(visible(place, g).from, block.from), std::min(place + rows, block.to)};
}

// scores[rows × keys of the block] = tile·panels, except panels that the mask hides. Column 0 is key block.from, which begins a
// panel.
void blockScores(const float* tile, int64_t place, int64_t rows, const float* panels, Range block, const Geometry& g, float* scores,
                 int64_t stride) {
  for (int64_t key = block.from; key < block.to; key += kPanelWidth) {
    const float* panel = panels + key / kPanelWidth * (g.size * kPanelWidth);
    for (int64_t r = 0; r < rows; r += kPanelRows) {
      const int64_t height = std::min<int64_t>(kPanelRows, rows - r);
      const Range seen = visible(place + r, height, g, block);
      if (key + kPanelWidth <= seen.from || key >= seen.to) continue;
      panelProduct<false>(height, tile + r * g.padded, g.padded, panel, kPanelWidth, scores + r * stride + key - block.from, stride,
                          kPanelWidth, g.size, false);
    }
  }
}

// out[rows × padded] (+)= weights[rows × keys of the block]·from[keys × padded]
void blockMix(const float* weights, int64_t stride, int64_t place, int64_t rows, const float* from, Range block, const Geometry& g,
              float* out, bool add) {
  for (int64_t r = 0; r < rows; r += kPanelRows) {
    const int64_t height = std::min<int64_t>(kPanelRows, rows - r);
    const Range seen = visible(place + r, height, g, block);
    panelProduct<false>(height, weights + r * stride + seen.from - block.from, stride, from + seen.from * g.padded, g.padded,
                        out + r * g.padded, g.padded, g.padded, std::max<int64_t>(0, seen.to - seen.from), add);
  }
}

// into[keys × padded] += weightsᵀ[keys of the block × rows]·tile[rows × padded]
void blockSpread(const float* weights, int64_t stride, int64_t place, int64_t rows, const float* tile, Range block, const Geometry& g,
                 float* into) {
  for (int64_t key = block.from; key < block.to; key += kPanelRows) {
    const int64_t height = std::min<int64_t>(kPanelRows, block.to - key);
    const int64_t from = std::max<int64_t>(0, key - place);
    const int64_t to = g.window > 0 ? std::min(rows, key + height - 1 + g.window - place) : rows;
    if (from >= to) continue;
    panelProduct<true>(height, weights + from * stride + key - block.from, stride, tile + from * g.padded, g.padded, into + key * g.padded,
                       g.padded, g.padded, to - from, true);
  }
}

struct Softmax {
  float peak, sum;
};

// Scores → e^(score − peak) where visible and 0 elsewhere in [0, width), and their sum.
Softmax softmaxRow(float* scores, Range seen, int64_t width, const float* bias, float scale) {
  float* first = scores + seen.from;
  const int64_t count = seen.to - seen.from;
  if (bias != nullptr) {
    for (int64_t i = 0; i < count; i++) first[i] = first[i] * scale + bias[seen.from + i];
  } else {
    for (int64_t i = 0; i < count; i++) first[i] *= scale;
  }
  const float peak = largest(first, count);
  const float sum = exponentials(first, count, peak, 1.0f, first);
  std::fill(scores, first, 0.0f);
  std::fill(first + count, scores + width, 0.0f);
  return {peak, sum};
}

class ForwardWorker {
 public:
  ForwardWorker(const float* q, const float* k, const float* v, const Geometry& g, float* out, float* lse)
      : q_(q), k_(k), v_(v), g_(g), out_(out), lse_(lse), tile_(kTileRows * g.padded), mixed_(kTileRows * g.padded) {}

  void run(const Family& family, int64_t group) {
    const int64_t room = roundUp(family.longest, kPanelWidth);
    grow(keys_, room * g_.size);
    grow(values_, room * g_.padded);
    grow(scores_, kTileRows * room);
    for (size_t m = 0; m < family.members.size(); m++) {
      const Member& member = family.members[m];
      const int64_t before = m == 0 ? 0 : family.shared;
      copyPanels(k_, member.start, member.rows, group, g_.groups, g_, before, keys_.data());
      copyRows(v_, member.start, member.rows, group, g_.groups, g_, values_.data() + before * g_.padded);
      for (int64_t head = group * g_.share; head < (group + 1) * g_.share; head++) {
        for (int64_t row = 0; row < member.rows; row += kTileRows)
          tile(member.start + row, std::min(kTileRows, member.rows - row), before + row, head);
      }
    }
  }

 private:
  // Queries [start, start + rows) of the batch; the first is at position `place` of its sequence.
  void tile(int64_t start, int64_t rows, int64_t place, int64_t head) {
    const Range all{visible(place, g_).from / kPanelWidth * kPanelWidth, place + rows};
    const int64_t stride = roundUp(all.to - all.from, kPanelWidth);
    copyRows(q_, start, rows, head, g_.heads, g_, tile_.data());
    blockScores(tile_.data(), place, rows, keys_.data(), all, g_, scores_.data(), stride);
    float shares[kTileRows];
    for (int64_t r = 0; r < rows; r++) {
      const Range seen = visible(place + r, g_);
      const float* bias = g_.bias == nullptr ? nullptr : g_.bias + head * g_.biasLength + all.from;
      const auto [peak, sum] = softmaxRow(scores_.data() + r * stride, {seen.from - all.from, seen.to - all.from}, stride, bias, g_.scale);
      lse_[(start + r) * g_.heads + head] = peak + std::log(sum);
      shares[r] = 1.0f / sum;
    }
    for (int64_t from = all.from; from < all.to; from += kBlockKeys)
      blockMix(scores_.data() + from - all.from, stride, place, rows, values_.data(), {from, std::min(from + kBlockKeys, all.to)}, g_,
               mixed_.data(), from > all.from);
    for (int64_t r = 0; r < rows; r++) {
      float* to = out_ + ((start + r) * g_.heads + head) * g_.size;
      for (int64_t d = 0; d < g_.size; d++) to[d] = mixed_[r * g_.padded + d] * shares[r];
    }
  }

  const float *q_, *k_, *v_;
  const Geometry& g_;
  float *out_, *lse_;
  std::vector<float> keys_, values_, scores_, tile_, mixed_;
};

class BackwardWorker {
 public:
  struct Inputs {
    const float *q, *k, *v, *out, *lse, *gradient;
  };
  struct Outputs {
    float *dq, *dk, *dv;
  };

  BackwardWorker(const Inputs& in, const Geometry& g, const Outputs& to)
      : in_(in),
        g_(g),
        to_(to),
        scores_(kTileRows * kBlockKeys),
        changes_(kTileRows * kBlockKeys),
        queries_(kTileRows * g.padded),
        incoming_(kTileRows * g.padded),
        dq_(kTileRows * g.padded) {}

  void run(const Family& family, int64_t group) {
    const int64_t room = roundUp(family.longest, kPanelWidth);
    for (auto* panels : {&keyPanels_, &valuePanels_}) grow(*panels, room * g_.size);
    for (auto* rows : {&keys_, &dk_, &dv_}) grow(*rows, room * g_.padded);
    for (size_t m = 0; m < family.members.size(); m++) {
      const Member& member = family.members[m];
      const int64_t before = m == 0 ? 0 : family.shared;
      copyPanels(in_.k, member.start, member.rows, group, g_.groups, g_, before, keyPanels_.data());
      copyPanels(in_.v, member.start, member.rows, group, g_.groups, g_, before, valuePanels_.data());
      copyRows(in_.k, member.start, member.rows, group, g_.groups, g_, keys_.data() + before * g_.padded);
      for (auto* sums : {&dk_, &dv_}) std::fill_n(sums->data() + before * g_.padded, member.rows * g_.padded, 0.0f);
      for (int64_t head = group * g_.share; head < (group + 1) * g_.share; head++) {
        for (int64_t row = 0; row < member.rows; row += kTileRows)
          tile(member.start + row, std::min(kTileRows, member.rows - row), before + row, head);
      }
      if (m > 0) handOver(member, before, group);
    }
    handOver(family.members[0], 0, group);
  }

 private:
  void handOver(const Member& member, int64_t before, int64_t group) {
    copyBack(dk_.data() + before * g_.padded, member.start, member.rows, group, g_.groups, g_, to_.dk);
    copyBack(dv_.data() + before * g_.padded, member.start, member.rows, group, g_.groups, g_, to_.dv);
  }

  void tile(int64_t start, int64_t rows, int64_t place, int64_t head) {
    copyRows(in_.q, start, rows, head, g_.heads, g_, queries_.data());
    copyRows(in_.gradient, start, rows, head, g_.heads, g_, incoming_.data());
    std::fill_n(dq_.data(), rows * g_.padded, 0.0f);
    float dots[kTileRows];
    for (int64_t r = 0; r < rows; r++)
      dots[r] = dotProduct(incoming_.data() + r * g_.padded, in_.out + ((start + r) * g_.heads + head) * g_.size, g_.size);
    for (int64_t from = visible(place, g_).from / kBlockKeys * kBlockKeys; from < place + rows; from += kBlockKeys) {
      const Range block{from, std::min(from + kBlockKeys, place + rows)};
      blockScores(queries_.data(), place, rows, keyPanels_.data(), block, g_, scores_.data(), kBlockKeys);
      blockScores(incoming_.data(), place, rows, valuePanels_.data(), block, g_, changes_.data(), kBlockKeys);
      for (int64_t r = 0; r < rows; r++) rowGradient(r, start + r, place + r, head, dots[r], block);
      blockMix(changes_.data(), kBlockKeys, place, rows, keys_.data(), block, g_, dq_.data(), true);
      blockSpread(changes_.data(), kBlockKeys, place, rows, queries_.data(), block, g_, dk_.data());
      blockSpread(scores_.data(), kBlockKeys, place, rows, incoming_.data(), block, g_, dv_.data());
    }
    copyBack(dq_.data(), start, rows, head, g_.heads, g_, to_.dq);
  }

  // Turns scores into P and dO·Vᵀ into scale·dS. Keys that the row does not see get 0 (a panel may hold such keys).
  void rowGradient(int64_t r, int64_t token, int64_t place, int64_t head, float dot, Range block) {
    float *p = scores_.data() + r * kBlockKeys, *ds = changes_.data() + r * kBlockKeys;
    const Range all = visible(place, g_);
    const int64_t width = block.to - block.from;
    const int64_t from = std::clamp<int64_t>(all.from - block.from, 0, width), to = std::clamp<int64_t>(all.to - block.from, from, width);
    const float lse = in_.lse[token * g_.heads + head], scale = g_.scale;
    if (g_.bias != nullptr) {
      const float* bias = g_.bias + head * g_.biasLength + block.from;
      for (int64_t t = from; t < to; t++) p[t] = p[t] * scale + bias[t];
    } else {
      for (int64_t t = from; t < to; t++) p[t] *= scale;
    }
#pragma omp simd
    for (int64_t t = from; t < to; t++) {
      p[t] = vexp(p[t] - lse);
      ds[t] = p[t] * (ds[t] - dot) * scale;
    }
    for (float* row : {p, ds}) {
      std::fill(row, row + from, 0.0f);
      std::fill(row + to, row + width, 0.0f);
    }
  }

  const Inputs in_;
  const Geometry& g_;
  const Outputs to_;
  std::vector<float> keyPanels_, valuePanels_, keys_, dk_, dv_, scores_, changes_, queries_, incoming_, dq_;
};

}  // namespace

std::pair<Tensor, Tensor> packedForwardCpu(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, const PackedCall& call) {
  const Geometry g = geometryOf(q, k, bias, call);
  Tensor out = at::empty(q.sizes(), q.options()), lse = at::empty({q.size(0), g.heads}, q.options());
  float *to = out.data_ptr<float>(), *sums = lse.data_ptr<float>();
  const float *queries = q.data_ptr<float>(), *keys = k.data_ptr<float>(), *values = v.data_ptr<float>();
  eachTask(familiesOf(call), g.groups, [&] { return ForwardWorker(queries, keys, values, g, to, sums); });
  return {out, lse};
}

std::array<Tensor, 3> packedBackwardCpu(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, const Tensor& out,
                                        const Tensor& lse, const Tensor& gradient, const PackedCall& call) {
  const Geometry g = geometryOf(q, k, bias, call);
  Tensor dq = at::empty(q.sizes(), q.options()), dk = at::empty(k.sizes(), k.options()), dv = at::empty(v.sizes(), v.options());
  const BackwardWorker::Inputs in{q.data_ptr<float>(),   k.data_ptr<float>(),   v.data_ptr<float>(),
                                  out.data_ptr<float>(), lse.data_ptr<float>(), gradient.data_ptr<float>()};
  const BackwardWorker::Outputs to{dq.data_ptr<float>(), dk.data_ptr<float>(), dv.data_ptr<float>()};
  eachTask(familiesOf(call), g.groups, [&] { return BackwardWorker(in, g, to); });
  return {dq, dk, dv};
}

}  // namespace attune
