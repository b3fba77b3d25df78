#include "net/event_loop.h"

#include <stdexcept>
#include <string>

#include "net/event_loop_internal.h"

namespace idetcd::net {

void checkUv(int status, const char* what) {
  if (status < 0) throw std::runtime_error(std::string(what) + ": " + uv_strerror(status));
}

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {
  checkUv(uv_loop_init(&impl_->loop), "uv_loop_init");
  impl_->wakeup.data = impl_.get();
  checkUv(uv_async_init(&impl_->loop, &impl_->wakeup,
                        [](uv_async_t* handle) {
                          auto& impl = *static_cast<Impl*>(handle->data);
                          std::vector<std::function<void()>> work;
                          {
                            const std::lock_guard lock(impl.mutex);
                            work.swap(impl.posted);
                          }
                          for (const auto& call : work) call();
                        }),
          "uv_async_init");
}

EventLoop::~EventLoop() {
  uv_close(reinterpret_cast<uv_handle_t*>(&impl_->wakeup), nullptr);
  uv_run(&impl_->loop, UV_RUN_DEFAULT);  // only close callbacks are left
  uv_loop_close(&impl_->loop);
}

void EventLoop::run() {
  impl_->thread = std::this_thread::get_id();
  uv_run(&impl_->loop, UV_RUN_DEFAULT);
}

bool EventLoop::isLoopThread() const { return impl_->thread.load() == std::this_thread::get_id(); }

void EventLoop::stop() {
  post([this] { uv_stop(&impl_->loop); });
}

void EventLoop::post(std::function<void()> work) {
  const std::lock_guard lock(impl_->mutex);
  impl_->posted.push_back(std::move(work));
  uv_async_send(&impl_->wakeup);
}

struct ReadWatcher::Impl : OwnedHandle<uv_poll_t> {
  void start() { checkUv(uv_poll_start(&handle, UV_READABLE, &onEvent), "uv_poll_start"); }

  // An error (POLLERR) counts as readable: the callback's read sees and clears it. libuv has given the descriptor up
  // by then.
  static void onEvent(uv_poll_t* handle, int status, int) {
    if (status < 0) static_cast<Impl&>(of(handle)).start();
    invoke(handle);
  }
};

ReadWatcher::ReadWatcher(EventLoop& loop, int fd, std::function<void()> on_readable) : impl_(new Impl) {
  impl_->handle.data = static_cast<OwnedHandle<uv_poll_t>*>(impl_);
  impl_->callback = std::move(on_readable);
  checkUv(uv_poll_init(&loop.impl().loop, &impl_->handle, fd), "uv_poll_init");
  impl_->start();
}

ReadWatcher::~ReadWatcher() { impl_->close(); }

struct Timer::Impl : OwnedHandle<uv_timer_t> {};

Timer::Timer(EventLoop& loop, std::function<void()> on_expiry) : impl_(new Impl) {
  impl_->handle.data = static_cast<OwnedHandle<uv_timer_t>*>(impl_);
  impl_->callback = std::move(on_expiry);
  checkUv(uv_timer_init(&loop.impl().loop, &impl_->handle), "uv_timer_init");
}

Timer::~Timer() { impl_->close(); }

void Timer::start(std::chrono::milliseconds timeout, std::chrono::milliseconds repeat) {
  uv_timer_start(
      &impl_->handle, [](uv_timer_t* handle) { OwnedHandle<uv_timer_t>::invoke(handle); },
      static_cast<uint64_t>(timeout.count()), static_cast<uint64_t>(repeat.count()));
}

void Timer::stop() { uv_timer_stop(&impl_->handle); }

struct BeforeWait::Impl : OwnedHandle<uv_prepare_t> {};

BeforeWait::BeforeWait(EventLoop& loop, std::function<void()> callback) : impl_(new Impl) {
  impl_->handle.data = static_cast<OwnedHandle<uv_prepare_t>*>(impl_);
  impl_->callback = std::move(callback);
  checkUv(uv_prepare_init(&loop.impl().loop, &impl_->handle), "uv_prepare_init");
  checkUv(uv_prepare_start(&impl_->handle, [](uv_prepare_t* handle) { OwnedHandle<uv_prepare_t>::invoke(handle); }),
          "uv_prepare_start");
}

BeforeWait::~BeforeWait() { impl_->close(); }

struct SignalWatcher::Impl : OwnedHandle<uv_signal_t> {};

SignalWatcher::SignalWatcher(EventLoop& loop, int signal, std::function<void()> on_signal) : impl_(new Impl) {
  impl_->handle.data = static_cast<OwnedHandle<uv_signal_t>*>(impl_);
  impl_->callback = std::move(on_signal);
  checkUv(uv_signal_init(&loop.impl().loop, &impl_->handle), "uv_signal_init");
  checkUv(uv_signal_start(
              &impl_->handle, [](uv_signal_t* handle, int) { OwnedHandle<uv_signal_t>::invoke(handle); }, signal),
          "uv_signal_start");
}

SignalWatcher::~SignalWatcher() { impl_->close(); }

}  // namespace idetcd::net
