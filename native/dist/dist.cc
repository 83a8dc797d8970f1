#include "dist/dist.h"

#include "dist/beat.h"
#include "dist/storage.h"
#include "door/values.h"
#ifdef ATTUNE_C10D
#include "dist/groups.h"
#include "dist/stores.h"
#include "dist/watch.h"
#endif

namespace attune {
namespace {

// distInfo(): what this build can do.
napi_value distInfo(napi_env env, Args&) {
#ifdef ATTUNE_C10D
  const bool c10d = true;
#else
  const bool c10d = false;
#endif
#ifdef ATTUNE_NCCL
  const bool nccl = true;
#else
  const bool nccl = false;
#endif
  return object(env, {{"c10d", fromBool(env, c10d)}, {"nccl", fromBool(env, nccl)}});
}

}  // namespace

std::vector<Export> distExports() {
  std::vector<Export> all = storageExports();
  for (const auto& each : beatExports()) all.push_back(each);
  all.push_back({"distInfo", door<distInfo>});
#ifdef ATTUNE_C10D
  for (const auto& list : {storeExports(), groupExports(), watchExports()}) all.insert(all.end(), list.begin(), list.end());
#endif
  return all;
}

}  // namespace attune
