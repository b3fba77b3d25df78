// Waiting for what other threads and processes bring about, with a bound.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace idetcd {

// True as soon as `condition` holds; false if it does not within `limit`. The limit only bounds a failure: it is
// generous, since the sanitizers and a busy machine make everything slow.
inline bool eventually(const std::function<bool()>& condition, std::chrono::seconds limit = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace idetcd
