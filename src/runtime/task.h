// Task<T>: a lazily started coroutine, awaited at most once. All Tasks of one Scheduler (scheduler.h) run on its one
// thread, so their code needs no locks.
//
// Rules (g++ 12 miscompiles some temporaries inside co_await expressions):
//   - a coroutine takes its parameters by value or by reference to something that outlives it;
//   - bind what you pass to a co_awaited call to a named variable first; write `auto r = co_await f(x);`.
#pragma once

#include <coroutine>
#include <exception>
#include <type_traits>

#include "base/std.h"

namespace idetcd::runtime {

template <typename T>
class Task;

namespace detail {

struct FinalAwaiter {
  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
    return self.promise().continuation ? self.promise().continuation : std::noop_coroutine();
  }
  void await_resume() const noexcept {}
};

struct PromiseBase {
  std::coroutine_handle<> continuation;
  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  // No exception crosses a Task: what can fail returns a value.
  [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
};

template <typename T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object() noexcept;
  void return_value(T v) { value.emplace(std::move(v)); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
};

}  // namespace detail

template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  explicit Task(Handle handle) noexcept : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  // Runs the Task until it ends or waits. If it ended, the waiter goes on without having been suspended: were it
  // resumed from the Task's end instead, a loop over Tasks that never wait would grow the stack wherever the compiler
  // makes no tail call of it, which g++ does at -O2 only.
  bool await_suspend(std::coroutine_handle<> waiter) noexcept {
    handle_.resume();
    if (handle_.done()) return false;
    handle_.promise().continuation = waiter;
    return true;
  }
  T await_resume() {
    if constexpr (!std::is_void_v<T>) return std::move(*handle_.promise().value);
  }

 private:
  Handle handle_;
};

namespace detail {
template <typename T>
Task<T> Promise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() noexcept {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}
}  // namespace detail

}  // namespace idetcd::runtime
