// For net/*.cc only: libuv's side of an EventLoop.
#pragma once

#include <thread>

#include <uv.h>

#include "net/event_loop.h"

namespace idetcd::net {

struct EventLoop::Impl {
  Result<void> open();

  uv_loop_t loop;
  uv_async_t wakeup;
  std::atomic<std::thread::id> thread{std::this_thread::get_id()};
  std::mutex mutex;
  std::vector<std::function<void()>> posted;  // guarded by mutex
  bool is_open = false;
};

// A libuv handle and its callback, which live until libuv has closed the handle: later than the object that owns them.
template <typename Handle>
struct OwnedHandle {
  Handle handle;
  std::function<void()> callback;

  static OwnedHandle& of(Handle* handle) { return *static_cast<OwnedHandle*>(handle->data); }

  // Runs a copy-free call that survives close() from inside: the function is only destroyed when the handle is closed.
  static void invoke(Handle* handle) {
    if (uv_is_closing(reinterpret_cast<uv_handle_t*>(handle)) == 0) of(handle).callback();
  }

  void close() {
    uv_close(reinterpret_cast<uv_handle_t*>(&handle),
             [](uv_handle_t* closed) { delete static_cast<OwnedHandle*>(closed->data); });
  }
};

// Of calls that libuv fails only for a programming error.
void mustSucceed(int status);

}  // namespace idetcd::net
