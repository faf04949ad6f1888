// Collective operations over PyTorch's c10d. Gloo is part of libtorch_cpu. NCCL is in a library of its own
// (nccl.cpp), because it needs CUDA.
#include <ATen/ATen.h>
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "guarded.h"

using at::Tensor;

struct Group {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Backend> backend;
};

// Creates a backend over a store that it keeps. The caller owns the reference.
typedef c10d::Backend *(*backend_maker)(c10d::Store *store, int rank, int world, int seconds);

static c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store> &store,
                                                   int rank, int world,
                                                   std::chrono::seconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, world, options);
}

extern "C" {

// `serve`: this process hosts the store. If `nccl` is null, Gloo is used.
int shim_group_new(const char *host, int port, int serve, int rank, int world, int seconds,
                   backend_maker nccl, Group **out) {
  return guarded([&] {
    std::chrono::seconds timeout(seconds);
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = serve != 0;
    options.numWorkers = world;
    // An external host of the store is not one of the processes.
    options.waitWorkers = false;
    options.timeout = timeout;
    c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::TCPStore>(host, options);
    store = c10::make_intrusive<c10d::PrefixStore>("pybench", store);
    auto backend = nccl ? c10::intrusive_ptr<c10d::Backend>::reclaim(
                              nccl(store.get(), rank, world, seconds))
                        : make_gloo(store, rank, world, timeout);
    *out = new Group{store, backend};
  });
}

int shim_group_all_reduce(Group *group, Tensor *tensor) {
  return guarded([&] {
    std::vector<Tensor> tensors{*tensor};
    group->backend->allreduce(tensors)->wait();
  });
}

int shim_group_all_gather(Group *group, Tensor *output, Tensor *input) {
  return guarded([&] { group->backend->_allgather_base(*output, *input)->wait(); });
}

int shim_group_reduce_scatter(Group *group, Tensor *output, Tensor *input) {
  return guarded([&] { group->backend->_reduce_scatter_base(*output, *input)->wait(); });
}

void shim_group_free(Group *group) { delete group; }
}
