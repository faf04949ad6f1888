// Compiles the kernels for the installed GPU and runs them. NVRTC and the driver are loaded through libtorch, so
// that no CUDA library is linked.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "guarded.h"
#include "kernels.h"

using at::Tensor;

namespace {

const char text[] =
#include "kernels_text.h"
    ;

const char *const names[] = {
#define NAME(...) #__VA_ARGS__,
    KERNELS(NAME)};

// Functions of NVRTC and of the driver, with the types of their headers.
struct Nvidia {
  using Program = void *;
  int (*create)(Program *, const char *, const char *, int, const char *const *, const char *const *);
  int (*destroy)(Program *);
  int (*add_name)(Program, const char *);
  int (*lowered_name)(Program, const char *, const char **);
  int (*compile)(Program, int, const char *const *);
  int (*log_size)(Program, size_t *);
  int (*log)(Program, char *);
  int (*cubin_size)(Program, size_t *);
  int (*cubin)(Program, char *);
  int (*attribute)(int *, int, int);
  int (*load)(void **, const void *);
  int (*function)(void **, void *, const char *);
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                void **, void **);
  int (*pin)(void *, size_t, unsigned);
  int (*unpin)(void *);

  explicit Nvidia(const char *compiler) {
    // libtorch loads both libraries; an explicitly given compiler is tried first.
    for (const char *library :
         {compiler, "libcaffe2_nvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libcuda.so.1"})
      if (void *handle = library ? dlopen(library, RTLD_NOW) : nullptr) handles.push_back(handle);
    find(create, "nvrtcCreateProgram");
    find(destroy, "nvrtcDestroyProgram");
    find(add_name, "nvrtcAddNameExpression");
    find(lowered_name, "nvrtcGetLoweredName");
    find(compile, "nvrtcCompileProgram");
    find(log_size, "nvrtcGetProgramLogSize");
    find(log, "nvrtcGetProgramLog");
    find(cubin_size, "nvrtcGetCUBINSize");
    find(cubin, "nvrtcGetCUBIN");
    find(attribute, "cuDeviceGetAttribute");
    find(load, "cuModuleLoadData");
    find(function, "cuModuleGetFunction");
    find(launch, "cuLaunchKernel");
    find(pin, "cuMemHostRegister_v2");
    find(unpin, "cuMemHostUnregister");
  }

private:
  std::vector<void *> handles;
  template <typename F> void find(F &function, const char *name) {
    function = nullptr;
    for (void *handle : handles)
      if (void *found = dlsym(handle, name)) {
        function = reinterpret_cast<F>(found);
        return;
      }
  }
};

struct Compiled {
  std::vector<char> cubin;
  // Names of template instances, and their mangled names.
  std::unordered_map<std::string, std::string> lowered;
};

Compiled compile(const Nvidia &nvidia, int capability) {
  TORCH_CHECK(nvidia.create && nvidia.compile && nvidia.cubin && nvidia.lowered_name,
              "CUDA's run-time compiler (libnvrtc) is not there");
  auto check = [](int code, const char *what) {
    TORCH_CHECK(code == 0, what, " failed with NVRTC's code ", code);
  };
  Nvidia::Program program = nullptr;
  check(nvidia.create(&program, text, "kernels.cu", 0, nullptr, nullptr), "creating a program");
  struct Held {
    const Nvidia &nvidia;
    Nvidia::Program &program;
    ~Held() { nvidia.destroy(&program); }
  } held{nvidia, program};
  for (const char *name : names) check(nvidia.add_name(program, name), name);
  std::string gpu = "--gpu-architecture=sm_" + std::to_string(capability);
  const char *options[] = {gpu.c_str(), "--std=c++17"};
  if (nvidia.compile(program, 2, options) != 0) {
    size_t size = 0;
    nvidia.log_size(program, &size);
    std::string log(size, '\0');
    nvidia.log(program, log.data());
    TORCH_CHECK(false, "NVRTC refused the kernels for sm_", capability, ": ", log.substr(0, 2000));
  }
  Compiled made;
  size_t size = 0;
  check(nvidia.cubin_size(program, &size), "the size of the binary");
  made.cubin.resize(size);
  check(nvidia.cubin(program, made.cubin.data()), "the binary");
  for (const char *name : names) {
    const char *lowered = nullptr;
    check(nvidia.lowered_name(program, name, &lowered), name);
    made.lowered[name] = lowered;
  }
  return made;
}

// The kernels on one GPU.
struct Loaded {
  std::unordered_map<std::string, void *> functions;

  Loaded(const Nvidia &nvidia, int device) {
    TORCH_CHECK(nvidia.attribute && nvidia.load && nvidia.function && nvidia.launch,
                "CUDA's driver is not there");
    int major = 0, minor = 0; // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
    TORCH_CHECK(!nvidia.attribute(&major, 75, device) && !nvidia.attribute(&minor, 76, device),
                "the driver does not know GPU ", device);
    Compiled compiled = compile(nvidia, 10 * major + minor);
    void *module = nullptr;
    TORCH_CHECK(nvidia.load(&module, compiled.cubin.data()) == 0, "the driver refused the kernels");
    for (auto &[name, lowered] : compiled.lowered)
      TORCH_CHECK(nvidia.function(&functions[name], module, lowered.c_str()) == 0, "no kernel ", name);
  }
};

const Nvidia &nvidia() {
  static const Nvidia found(nullptr);
  return found;
}

const Loaded &loaded(int device) {
  static std::mutex alone;
  static std::unordered_map<int, Loaded> all;
  std::lock_guard<std::mutex> lock(alone);
  auto found = all.find(device);
  if (found == all.end()) found = all.emplace(device, Loaded(nvidia(), device)).first;
  return found->second;
}

} // namespace

void run_on_gpu(int device, const Launch &launch) {
  if (launch.blocks == 0) return;
  TORCH_CHECK(launch.blocks <= INT32_MAX, launch.kernel, " over ", launch.blocks, " blocks");
  // The GPU context must be current on this thread. libtorch uses the default stream, and so do we.
  c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  void *function = loaded(device).functions.at(launch.kernel);
  int code = nvidia().launch(function, static_cast<unsigned>(launch.blocks), 1, 1,
                             THREADS_OF_A_BLOCK, 1, 1, 0, nullptr, launch.arguments, nullptr);
  TORCH_CHECK(code == 0, "CUDA's code ", code, " from kernel ", launch.kernel);
}

bool gpu_runs_kernels() {
  static const bool runs = [] {
    if (!at::hasCUDA()) return false;
    const char *wish = std::getenv("PYBENCH_KERNELS");
    if (wish && std::string(wish) == "0") return false;
    try {
      // A context must exist before a module is loaded.
      Tensor first = at::zeros({1}, at::TensorOptions(at::kCUDA));
      c10::DeviceGuard guard(first.device());
      loaded(first.device().index());
      return true;
    } catch (const std::exception &error) {
      std::fprintf(stderr, "warning: libtorch's operations in place of fused ones: %s\n", error.what());
      return false;
    }
  }();
  return runs;
}

extern "C" {

// Whether the fused operations run on GPUs.
int shim_gpu_kernels() { return gpu_runs_kernels(); }

// Locks a range of main memory, from which GPUs then copy several times as fast. Whether that succeeded; it must be
// unlocked before the memory is freed.
int shim_pin(void *start, size_t bytes) {
  if (!gpu_runs_kernels() || !nvidia().pin || !nvidia().unpin) return 0;
  return guarded([&] {
           c10::DeviceGuard guard(c10::Device(c10::kCUDA, 0));
           TORCH_CHECK(nvidia().pin(start, bytes, /*for all contexts*/ 1) == 0, "memory cannot be locked");
         }) == 0;
}
void shim_unpin(void *start) { nvidia().unpin(start); }

// Uses the emulated kernels for CPU tensors of this thread.
void shim_emulate(int on) { emulating = on; }
int shim_emulating() { return emulating; }

// Compiles the kernels with a given library for a compute capability (90 is sm_90), without running them.
int shim_compile_kernels(const char *compiler, int capability) {
  return guarded([&] { compile(Nvidia(compiler), capability); });
}
}
