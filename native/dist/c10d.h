// The headers of this libtorch's c10d, under one set of names: in 1.13 a backend is a ProcessGroup, in 2.x a Backend.
#pragma once
#define USE_C10D_GLOO 1
#include "dist/gloo/gloo/algorithm.h"
#include "dist/gloo/gloo/common/error.h"
#include "dist/gloo/gloo/context.h"
#include "dist/gloo/gloo/rendezvous/store.h"
#include "dist/gloo/gloo/transport/device.h"
// Order: Gloo's stand-ins first.
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef ATTUNE_NCCL
#define USE_C10D_NCCL 1
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif
#include <torch/version.h>

namespace attune {
#if TORCH_VERSION_MAJOR == 1
using Backend = c10d::ProcessGroup;
#else
using Backend = c10d::Backend;
#endif
using StorePointer = c10::intrusive_ptr<c10d::Store>;
}  // namespace attune
