// Instructions that CUDA C++ cannot express. Inline assembly is in this file, except that of a single kernel (wide/hopper.cuh,
// sampling/search.cuh, solo/attention.cu, attention/many.cuh, begin/step_begin.cu, vocabulary.cu).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace attune {

// —— overlapping kernels: each starts while the previous one still runs, does independent work, and then waits ————————————————
// A kernel launched by `launchInRow` calls `waitForPrevious` before it reads what earlier kernels wrote and before it writes anything.
// It waits for the complete end of the previous kernel, which has waited itself, so all earlier ones have ended too.
// A kernel that calls `letNextBegin` before it waits lets the next ones start as far ahead as there is room for them: products and the
// attention of a step do. The others wait first. So before its wait a kernel may read only what was written before the last of those
// others began: before a step's `begin/step_begin.cu`, that is weights, positions, tables and the keys of earlier tokens.
__device__ inline void letNextBegin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ inline void waitForPrevious() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// —— loads of what is read once, so that it need not stay in the L1 cache ————————————————————————————————————————————————
__device__ inline uint2 streamTwo(const void* from) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
  return v;
}
__device__ inline uint4 stream(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}

/** What the previous kernel wrote, past the L1 cache; never moved before `waitForPrevious`. */
__device__ inline uint4 loadFresh(const void* from) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
  return v;
}

/** Brings a line into the L1 cache. */
__device__ inline void prefetch(const void* from) { asm volatile("prefetch.global.L1 [%0];" ::"l"(from)); }

// —— copies from global to shared memory that go on while the warp works ————————————————————————————————————————————————————
// A thread's copies since its last `commitCopies` are a group; `waitForCopies<N>` waits until at most N of its groups are under way.
__device__ inline unsigned sharedAddress(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

template <int BYTES>
__device__ inline void copyAsync(void* to, const void* from) {
  static_assert(BYTES == 16);
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(sharedAddress(to)), "l"(from) : "memory");
}
/** Copies 16 bytes; zeros where not `real`. */
template <int BYTES>
__device__ inline void copyAsync(void* to, const void* from, bool real) {
  static_assert(BYTES == 16);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(sharedAddress(to)), "l"(from), "r"(real ? 16 : 0) : "memory");
}
/** Copies the first `bytes` of 16 and zeros for the rest. */
__device__ inline void copyAsyncPart(void* to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(sharedAddress(to)), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void commitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ inline void waitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// —— copies of whole rows by one thread. A barrier in shared memory, used once, counts the bytes that have arrived. —————————————————————
__device__ inline void initBarrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(sharedAddress(barrier)) : "memory");
}
/** After `initBarrier`, by the same thread. */
__device__ inline void publishBarriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/** By one thread, once: how many bytes arrive. */
__device__ inline void expectBytes(uint64_t* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(bytes) : "memory");
}
/** One of the arrivals that a barrier counts. */
__device__ inline void arriveAt(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sharedAddress(barrier)) : "memory");
}
__device__ inline void waitForBytes(uint64_t* barrier) {
  unsigned done;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(sharedAddress(barrier))
                 : "memory");
  } while (done == 0);
}
/** `bytes` and both addresses are multiples of 16. */
__device__ inline void copyBulk(void* to, const void* from, unsigned bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sharedAddress(to)),
               "l"(from), "r"(bytes), "r"(sharedAddress(barrier))
               : "memory");
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/** `copyBulk` of what is read once: it leaves the L2 cache first. */
__device__ inline void streamBulk(void* to, const void* from, unsigned bytes, uint64_t* barrier) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(sharedAddress(to)),
      "l"(from), "r"(bytes), "r"(sharedAddress(barrier)), "l"(policy)
      : "memory");
}
#endif

/** Like `copyBulk`, into the same place of those blocks of the cluster whose bits are set, and counted by the same barrier of each. */
__device__ inline void copyBulkToAll(void* to, const void* from, unsigned bytes, uint64_t* barrier, unsigned short blocks) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
                   sharedAddress(to)),
               "l"(from), "r"(bytes), "r"(sharedAddress(barrier)), "h"(blocks)
               : "memory");
}

/** Adds to a number in shared memory where it `is` so, without a branch. */
__device__ inline void addIf(bool is, unsigned* to, unsigned by) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p red.shared.add.u32 [%0], %1;\n}" ::"r"(sharedAddress(to)), "r"(by),
               "r"(static_cast<unsigned>(is))
               : "memory");
}

/** x = __byte_perm(x, other, bytes) where it `is` so, without a branch. */
__device__ inline void permuteIf(bool is, unsigned& x, unsigned other, unsigned bytes) {
  asm("{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\n@p prmt.b32 %0, %0, %1, %2;\n}"
      : "+r"(x)
      : "r"(other), "r"(bytes), "r"(static_cast<unsigned>(is)));
}

/** Counts one more in shared memory and returns how many there were; what was read or written before is done before others see it. */
__device__ inline unsigned countOne(unsigned* counter) {
  unsigned before;
  asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], 1;" : "=r"(before) : "r"(sharedAddress(counter)) : "memory");
  return before;
}

/** Barrier WHICH (0 is __syncthreads') of so many threads of a block, whole warps. */
template <int WHICH, int THREADS>
__device__ inline void syncThreads() {
  asm volatile("bar.sync %0, %1;" ::"n"(WHICH), "n"(THREADS) : "memory");
}

/** The same without waiting: for warps that only tell the others. */
template <int WHICH, int THREADS>
__device__ inline void arriveThreads() {
  asm volatile("bar.arrive %0, %1;" ::"n"(WHICH), "n"(THREADS) : "memory");
}

// —— registers that warps of a block give to others: four warps that follow each other call the same ————————————————————————————
template <int REGISTERS>
__device__ inline void raiseRegisters() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}
template <int REGISTERS>
__device__ inline void lowerRegisters() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}

// —— clusters: blocks that run at the same time and reach each other's shared memory —————————————————————————————————————————
__device__ inline unsigned clusterRank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline unsigned clusterSize() {
  unsigned size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}
/** All threads of all blocks of the cluster arrive, then wait for each other; stores before are seen after. */
__device__ inline void clusterArrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void clusterWait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/** The same shared variable of another block of the cluster. */
template <typename T>
__device__ inline T* ofBlock(T* mine, unsigned rank) {
  uint64_t there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(mine), "r"(rank));
  return reinterpret_cast<T*>(there);
}

// Stores into the shared memory of a block of the cluster, counted by a barrier there. Nobody else waits for them: the block that stores
// may end, and the other one knows by its barrier when all have arrived. Addresses are those of `addressOf`.
__device__ inline unsigned addressOf(const void* mine, unsigned rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(sharedAddress(mine)), "r"(rank));
  return there;
}
__device__ inline void storeAsync(unsigned to, float x, unsigned barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(x), "r"(barrier) : "memory");
}
__device__ inline void storeAsync(unsigned to, float2 x, unsigned barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1,%2}, [%3];" ::"r"(to), "f"(x.x), "f"(x.y),
               "r"(barrier)
               : "memory");
}
/** `waitForBytes` where other blocks have stored them. */
__device__ inline void waitForStores(uint64_t* barrier) {
  unsigned done;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(sharedAddress(barrier))
                 : "memory");
  } while (done == 0);
}

/** (x & mask) ^ flip. */
__device__ inline unsigned maskAndFlip(unsigned x, unsigned mask, unsigned flip) {
  unsigned y;
  asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(y) : "r"(x), "r"(mask), "r"(flip));
  return y;
}

// —— tensor cores: c[16, 8] += a[16, 16]·b[16, 8] by one warp (mma.cuh says which lane holds what) ——————————————————————————
__device__ inline void multiplyBFloat16(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ inline void multiplyFloat16(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
/** c[16, 8] += a[16, 32]·b[32, 8] of bytes: as above, with four bytes of a row where those have two numbers. */
__device__ inline void multiplyBytes(int (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/** Two numbers rounded into one register, the first in the low half. */
__device__ inline unsigned packBFloat16(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
__device__ inline unsigned packFloat16(float low, float high) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

/** Transposes an 8×8 matrix of 16-bit numbers whose rows are held as c's are. */
__device__ inline unsigned transposed(unsigned both) {
  unsigned turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(both));
  return turned;
}

// —— four 8×8 matrices of 16-bit numbers from shared memory: lane l gives the address of row l % 8 of matrix l / 8. Of each matrix
// lane (g, t) = (lane / 4, lane % 4) gets row g at columns 2t and 2t + 1; transposed, column g at rows 2t and 2t + 1. ———————————————
__device__ inline void loadMatrices(unsigned (&r)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
__device__ inline void loadTransposed(unsigned (&r)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
__device__ inline void loadMatrices(unsigned (&r)[4], const void* row) { loadMatrices(r, sharedAddress(row)); }
__device__ inline void loadTransposed(unsigned (&r)[4], const void* row) { loadTransposed(r, sharedAddress(row)); }

/** The other way, of rows: lane l gives the address of row l % 8 of matrix l / 8. */
__device__ inline void storeMatrices(unsigned row, unsigned a, unsigned b, unsigned c, unsigned d) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
#endif
}

/** 2^x; 0 for −∞. */
__device__ inline float powerOf2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float logarithm2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace attune
