#include "net/event_loop.h"

#include <cstdlib>
#include <stdexcept>

#include "net/event_loop_internal.h"

namespace idetcd::net {

void mustSucceed(int status) {
  if (status < 0) std::abort();
}

Result<void> EventLoop::Impl::open() {
  if (const int status = uv_loop_init(&loop); status < 0) return failWith(-status, "uv_loop_init");
  wakeup.data = this;
  const int status = uv_async_init(&loop, &wakeup, [](uv_async_t* handle) {
    auto& impl = *static_cast<Impl*>(handle->data);
    std::vector<std::function<void()>> work;
    {
      const std::lock_guard lock(impl.mutex);
      work.swap(impl.posted);
    }
    for (const auto& call : work) call();
  });
  is_open = status == 0;
  if (is_open) return {};
  uv_loop_close(&loop);
  return failWith(-status, "uv_async_init");
}

EventLoop::EventLoop(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {
  if (const auto opened = impl_->open(); !opened) throw std::runtime_error(opened.error().message);
}

Result<std::unique_ptr<EventLoop>> EventLoop::make() {
  auto impl = std::make_unique<Impl>();
  if (auto opened = impl->open(); !opened) return tl::unexpected(opened.error());
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(impl)));
}

EventLoop::~EventLoop() {
  std::vector<std::function<void()>> undone;  // what it holds may own handles
  {
    const std::lock_guard lock(impl_->mutex);
    undone.swap(impl_->posted);
  }
  undone.clear();
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
  void start() { mustSucceed(uv_poll_start(&handle, UV_READABLE, &onEvent)); }

  // An error (POLLERR) counts as readable: the callback's read sees and clears it. libuv has given the descriptor up
  // by then.
  static void onEvent(uv_poll_t* handle, int status, int) {
    if (status < 0) static_cast<Impl&>(of(handle)).start();
    invoke(handle);
  }
};

ReadWatcher::ReadWatcher(EventLoop& loop, int fd, std::function<void()> on_readable)
    : loop_(loop), fd_(fd), on_readable_(std::move(on_readable)) {
  begin();
}

ReadWatcher::~ReadWatcher() {
  if (impl_ != nullptr) impl_->close();
}

void ReadWatcher::begin() {
  constexpr std::chrono::milliseconds kRetryInterval{100};
  auto impl = std::make_unique<Impl>();
  impl->handle.data = static_cast<OwnedHandle<uv_poll_t>*>(impl.get());
  const int status = uv_poll_init(&loop_.impl().loop, &impl->handle, fd_);
  if (isWantOfResources(-status)) {
    if (!retry_) retry_ = std::make_unique<Timer>(loop_, [this] { begin(); });
    return retry_->start(kRetryInterval);
  }
  mustSucceed(status);
  impl->callback = std::move(on_readable_);
  impl_ = impl.release();
  impl_->start();
}

struct Timer::Impl : OwnedHandle<uv_timer_t> {};

Timer::Timer(EventLoop& loop, std::function<void()> on_expiry) : impl_(new Impl) {
  impl_->handle.data = static_cast<OwnedHandle<uv_timer_t>*>(impl_);
  impl_->callback = std::move(on_expiry);
  mustSucceed(uv_timer_init(&loop.impl().loop, &impl_->handle));
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
  mustSucceed(uv_prepare_init(&loop.impl().loop, &impl_->handle));
  mustSucceed(
      uv_prepare_start(&impl_->handle, [](uv_prepare_t* handle) { OwnedHandle<uv_prepare_t>::invoke(handle); }));
}

BeforeWait::~BeforeWait() { impl_->close(); }

struct SignalWatcher::Impl : OwnedHandle<uv_signal_t> {};

SignalWatcher::SignalWatcher(EventLoop& loop, int signal, std::function<void()> on_signal) : impl_(new Impl) {
  impl_->handle.data = static_cast<OwnedHandle<uv_signal_t>*>(impl_);
  impl_->callback = std::move(on_signal);
  int status = uv_signal_init(&loop.impl().loop, &impl_->handle);
  if (status == 0) {
    status = uv_signal_start(
        &impl_->handle, [](uv_signal_t* handle, int) { OwnedHandle<uv_signal_t>::invoke(handle); }, signal);
  }
  if (status < 0) throw std::runtime_error(std::string("uv_signal: ") + uv_strerror(status));
}

SignalWatcher::~SignalWatcher() { impl_->close(); }

}  // namespace idetcd::net
