// Features of compute capability 9.0 only (sm_90a): copies of tiles by tensor maps, also to several blocks at once, and warpgroup products.
// Instructions as in instructions.cuh.
#pragma once
#include <cuda.h>

#include "cuda/instructions.cuh"

namespace attune {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// —— copies of tiles by one thread: a tensor map says where the matrix is, how large a tile is and how its rows lie in shared memory.
// What lies outside the matrix is zero. A barrier that is used again and again has a phase: its first use is phase 0, the next phase 1,
// then 0 again. ——————————————————————————————————————————————————————————————————————————————————————————————————————————
__device__ inline void initBarrier(uint64_t* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(arrivals) : "memory");
}
__device__ inline void waitForPhase(uint64_t* barrier, unsigned phase) {
  asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(
                   sharedAddress(barrier)),
               "r"(phase)
               : "memory");
}
/** Arrives at the same barrier of another block of the cluster. (With .release.cluster a chunk of a product took 1 µs, not 0.3.) */
__device__ inline void arriveAt(uint64_t* barrier, unsigned rank) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(
                   sharedAddress(barrier)),
               "r"(rank)
               : "memory");
}
__device__ inline void fetchMap(const CUtensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
__device__ inline void copyTile(void* to, const CUtensorMap* map, int column, int row, uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                   sharedAddress(to)),
               "l"(map), "r"(column), "r"(row), "r"(0), "r"(sharedAddress(barrier))
               : "memory");
}
/** `copyTile` of a map of lines of 64 inputs, rows, and chunks of 64 inputs: tiles of several chunks. */
__device__ inline void copyChunks(void* to, const CUtensorMap* map, int row, int chunk, uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                   sharedAddress(to)),
               "l"(map), "r"(0), "r"(row), "r"(chunk), "r"(sharedAddress(barrier))
               : "memory");
}
/** A tile of a map of columns, rows and layers. */
__device__ inline void copyBox(void* to, const CUtensorMap* map, int column, int row, int layer, uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                   sharedAddress(to)),
               "l"(map), "r"(column), "r"(row), "r"(layer), "r"(sharedAddress(barrier))
               : "memory");
}
/** `copyChunks` of two matrices, eight rows of each in turn: a map of lines, eight rows, matrices, eights of rows, and chunks. */
__device__ inline void copyChunksOfTwo(void* to, const CUtensorMap* map, int eight, int chunk, uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, %2, %3, %4}], [%5];" ::"r"(
                   sharedAddress(to)),
               "l"(map), "r"(0), "r"(eight), "r"(chunk), "r"(sharedAddress(barrier))
               : "memory");
}
/** Into the L2 cache alone. */
__device__ inline void fetchTile(const CUtensorMap* map, int column, int row) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map), "r"(column), "r"(row), "r"(0) : "memory");
}
/** `copyTile` to several blocks of the cluster, one bit each: to the same place, and the same barrier of each is told. */
__device__ inline void copyTileTo(unsigned blocks, void* to, const CUtensorMap* map, int column, int row, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], "
      "%6;" ::"r"(sharedAddress(to)),
      "l"(map), "r"(column), "r"(row), "r"(0), "r"(sharedAddress(barrier)), "h"(static_cast<unsigned short>(blocks))
      : "memory");
}
/** `copyTile` of what is read once: it leaves the L2 cache first. */
__device__ inline void streamTile(void* to, const CUtensorMap* map, int column, int row, uint64_t* barrier) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], "
      "%6;" ::"r"(sharedAddress(to)),
      "l"(map), "r"(column), "r"(row), "r"(0), "r"(sharedAddress(barrier)), "l"(policy)
      : "memory");
}
/** By every thread that has stored what `storeTile` copies, before it. */
__device__ inline void showToCopies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/** The other way: from shared memory to the matrix, but for what lies outside, as a group of copies of its own. */
__device__ inline void storeTile(const void* from, const CUtensorMap* map, int column, int row) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];\ncp.async.bulk.commit_group;" ::"l"(map),
               "r"(column), "r"(row), "r"(0), "r"(sharedAddress(from))
               : "memory");
}
/** The same, but the numbers are added to the matrix's. */
__device__ inline void addTile(const void* from, const CUtensorMap* map, int column, int row) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, %3}], [%4];\ncp.async.bulk.commit_group;" ::"l"(map),
      "r"(column), "r"(row), "r"(0), "r"(sharedAddress(from))
      : "memory");
}
/** Waits until shared memory has been read for all but the last LEFT groups of this thread. */
template <int LEFT>
__device__ inline void waitForStoredTiles() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

/** As the others of instructions.cuh. */
__device__ inline void storeAsync(unsigned to, const float4& x, unsigned barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(to), "f"(x.x), "f"(x.y),
               "f"(x.z), "f"(x.w), "r"(barrier)
               : "memory");
}

// —— products of a warpgroup (four warps): d[64, N] += a[64, 16]·b[16, N], b as N rows of 16 inputs in shared memory. Warp w holds rows
// 16·w … of d, four numbers for every eight columns, as mma.cuh says it of c; a is 64 rows of 16 inputs in shared memory. They go on while
// the warps work: `beginMultiplying` before the first, `commitMultiplying` after the last of a group, `waitForMultiplying` before d is used. ——————————————
/** Where a matrix is: rows of 128 bytes, swizzled as copyTile does it. */
__device__ inline uint64_t describeRows(const void* first) {
  constexpr uint64_t kEightRows = 1024 >> 4, kSwizzle128 = 1;
  return (sharedAddress(first) >> 4) | uint64_t{1} << 16 | kEightRows << 32 | kSwizzle128 << 62;
}
/** The same of b as 16 rows of N numbers, in panels of 64 columns: rows of 128 bytes, and a panel so many bytes after the one before. */
__device__ inline uint64_t describeColumns(const void* first, unsigned panelBytes) {
  return (describeRows(first) & ~(uint64_t{0x3FFF} << 16)) | static_cast<uint64_t>(panelBytes >> 4) << 16;
}
__device__ inline void beginMultiplying() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commitMultiplying() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/** Waits until at most LEFT groups are under way. */
template <int LEFT>
__device__ inline void waitForMultiplying() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// The numbers of d that an instruction names, and the same as its operands.
#define ATTUNE_4 "%0,%1,%2,%3"
#define ATTUNE_8 ATTUNE_4 ",%4,%5,%6,%7"
#define ATTUNE_16 ATTUNE_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define ATTUNE_20 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19"
#define ATTUNE_32 ATTUNE_20 ",%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define ATTUNE_36                                                        \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17," \
  "%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35"
#define ATTUNE_48 ATTUNE_36 ",%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define ATTUNE_56 ATTUNE_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define ATTUNE_64 ATTUNE_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define ATTUNE_72 ATTUNE_56 ",%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71"
#define ATTUNE_96 ATTUNE_72 ",%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define ATTUNE_104 \
  ATTUNE_72 ",%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,"   \
            "%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103"
#define ATTUNE_128 \
  ATTUNE_104 ",%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115," \
             "%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define ATTUNE_F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ATTUNE_F12(i) ATTUNE_F4(i), ATTUNE_F4(i + 4), ATTUNE_F4(i + 8)
#define ATTUNE_D4 ATTUNE_F4(0)
#define ATTUNE_D8 ATTUNE_F4(0), ATTUNE_F4(4)
#define ATTUNE_D16 ATTUNE_F12(0), ATTUNE_F4(12)
#define ATTUNE_D20 ATTUNE_F12(0), ATTUNE_F4(12), ATTUNE_F4(16)
#define ATTUNE_D32 ATTUNE_D20, ATTUNE_F12(20)
#define ATTUNE_D36 ATTUNE_F12(0), ATTUNE_F12(12), ATTUNE_F12(24)
#define ATTUNE_D48 ATTUNE_D36, ATTUNE_F12(36)
#define ATTUNE_D56 ATTUNE_D48, ATTUNE_F4(48), ATTUNE_F4(52)
#define ATTUNE_D64 ATTUNE_D56, ATTUNE_F4(56), ATTUNE_F4(60)
#define ATTUNE_D72 ATTUNE_D56, ATTUNE_F12(56), ATTUNE_F4(68)
#define ATTUNE_D96 ATTUNE_D72, ATTUNE_F12(72), ATTUNE_F12(84)
#define ATTUNE_D104 ATTUNE_D72, ATTUNE_F12(72), ATTUNE_F12(84), ATTUNE_F4(96), ATTUNE_F4(100)
#define ATTUNE_D128 ATTUNE_D104, ATTUNE_F12(104), ATTUNE_F12(116)
// Of COUNT numbers a thread, COLUMNS of d; A, B and ADDS are the operands after them.
#define ATTUNE_MULTIPLY_GROUP(COUNT, COLUMNS, A, B, ADDS)                                                           \
  __device__ inline void multiplyGroup(float (&d)[COUNT], uint64_t a, uint64_t b, bool adds) {                      \
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %" #ADDS ", 0;\n"                                               \
                 "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.bf16.bf16 {" ATTUNE_##COUNT "}, %" #A ", %" #B \
                 ", p, 1, 1, 0, 0;\n}"                                                                              \
                 : ATTUNE_D##COUNT                                                                                  \
                 : "l"(a), "l"(b), "r"(static_cast<unsigned>(adds)));                                               \
  }
ATTUNE_MULTIPLY_GROUP(4, 8, 4, 5, 6)
ATTUNE_MULTIPLY_GROUP(8, 16, 8, 9, 10)
ATTUNE_MULTIPLY_GROUP(16, 32, 16, 17, 18)
ATTUNE_MULTIPLY_GROUP(20, 40, 20, 21, 22)
ATTUNE_MULTIPLY_GROUP(32, 64, 32, 33, 34)
ATTUNE_MULTIPLY_GROUP(36, 72, 36, 37, 38)
ATTUNE_MULTIPLY_GROUP(48, 96, 48, 49, 50)
ATTUNE_MULTIPLY_GROUP(56, 112, 56, 57, 58)
ATTUNE_MULTIPLY_GROUP(72, 144, 72, 73, 74)
ATTUNE_MULTIPLY_GROUP(96, 192, 96, 97, 98)
ATTUNE_MULTIPLY_GROUP(104, 208, 104, 105, 106)
ATTUNE_MULTIPLY_GROUP(128, 256, 128, 129, 130)

/** d[64, 64] = a·b: the first product of a sum. What was in d does not count, so that it need not wait for it. */
__device__ inline void multiplyFirst(float (&d)[32], uint64_t a, uint64_t b) {
#define ATTUNE_R8(i) \
  "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3]), "=f"(d[i + 4]), "=f"(d[i + 5]), "=f"(d[i + 6]), "=f"(d[i + 7])
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" ATTUNE_32
               "}, %32, %33, p, 1, 1, 0, 0;\n}"
               : ATTUNE_R8(0), ATTUNE_R8(8), ATTUNE_R8(16), ATTUNE_R8(24)
               : "l"(a), "l"(b));
#undef ATTUNE_R8
}

/** d[64, 128] += a·b with a in registers, as mma.cuh has it, and b as `describeColumns` says. */
__device__ inline void multiplyGroup(float (&d)[64], const unsigned (&a)[4], uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" ATTUNE_64 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
               : ATTUNE_D64
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#define ATTUNE_I4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define ATTUNE_I16(i) ATTUNE_I4(i), ATTUNE_I4(i + 4), ATTUNE_I4(i + 8), ATTUNE_I4(i + 12)
/** d[64, 256] += a[64, 32]·b[32, 256] of bytes with signs, in whole numbers. */
__device__ inline void multiplyGroup(int (&d)[128], uint64_t a, uint64_t b, bool adds) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %130, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {" ATTUNE_128 "}, %128, %129, p;\n}"
               : ATTUNE_I16(0), ATTUNE_I16(16), ATTUNE_I16(32), ATTUNE_I16(48), ATTUNE_I16(64), ATTUNE_I16(80), ATTUNE_I16(96),
                 ATTUNE_I16(112)
               : "l"(a), "l"(b), "r"(static_cast<unsigned>(adds)));
}

/** Keeps what computes or uses d on its side of a wait or a beginning, which do not name d. */
template <int COUNT>
__device__ inline void holdSums(int (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(d[i])::"memory");
}
template <int COUNT>
__device__ inline void holdSums(float (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}
#endif
}  // namespace attune
