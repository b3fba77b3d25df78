// Work on a scheduler's thread, awaited by a test's own, for tests.
#pragma once

#include <functional>
#include <future>

#include "runtime/scheduler.h"

namespace idetcd::naming {

inline void onThread(runtime::Scheduler& scheduler, const std::function<void()>& work) {
  std::promise<void> done;
  scheduler.post([&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace idetcd::naming
