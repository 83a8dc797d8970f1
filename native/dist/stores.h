// Stores: small keys and values that all ranks see (c10d's TCPStore and FileStore).
#pragma once
#include "dist/c10d.h"
#include "dist/lane.h"

namespace attune {

struct StoreEntry {
  StorePointer store;
  std::unique_ptr<Lane> lane;
};

/** Connects to a store, or serves one. Throws if that fails, and logs nothing. */
StorePointer openTcpStore(const std::string& host, const c10d::TCPStoreOptions& options);
StoreEntry& storeAt(int64_t id);
std::vector<Export> storeExports();

}  // namespace attune
