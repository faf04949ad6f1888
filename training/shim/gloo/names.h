// libtorch ships ProcessGroupGloo.hpp without Gloo's own headers. These are the names that it
// mentions; the shim touches nothing of what they stand for.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gloo {
class Context {
public:
  void setTimeout(std::chrono::milliseconds);
};
namespace transport {
class Device;
class UnboundBuffer;
} // namespace transport
namespace rendezvous {
class Store {
public:
  virtual ~Store();
  virtual void set(const std::string &, const std::vector<char> &) = 0;
  virtual std::vector<char> get(const std::string &) = 0;
  virtual void wait(const std::vector<std::string> &) = 0;
  virtual void wait(const std::vector<std::string> &, const std::chrono::milliseconds &) = 0;
};
} // namespace rendezvous
} // namespace gloo
