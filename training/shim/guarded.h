// No C++ exception leaves the shim: a function returns 1 and stores a message for `shim_error`.
#pragma once
#include <exception>
#include <string>
#include <vector>

extern thread_local std::string shim_last_error;

template <typename Body> static int guarded(Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception &error) {
    shim_last_error = error.what();
    return 1;
  }
}
