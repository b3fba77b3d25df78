// Awaiting Tasks from a test's own thread.
#pragma once

#include <future>
#include <memory>
#include <type_traits>
#include <utility>

#include "etcd/completion_thread.h"
#include "runtime/task.h"

namespace idetcd::etcd {

using runtime::Task;

template <typename T>
Task<void> fulfil(std::shared_ptr<std::promise<T>> promise, Task<T> task) {
  if constexpr (std::is_void_v<T>) {
    co_await task;
    promise->set_value();
  } else {
    auto value = co_await task;
    promise->set_value(std::move(value));
  }
}

// Starts `task` on the completion thread.
template <typename T>
std::future<T> start(CompletionThread& thread, Task<T> task) {
  auto promise = std::make_shared<std::promise<T>>();
  auto future = promise->get_future();
  thread.spawn(fulfil<T>(promise, std::move(task)));
  return future;
}

// Runs `task` on the completion thread and waits for its end.
template <typename T>
T await(CompletionThread& thread, Task<T> task) {
  return start(thread, std::move(task)).get();
}

}  // namespace idetcd::etcd
