// One answer of this process that all who look share: it is made once an interval at most, and once at a time. Who asks
// meanwhile gets that one. Any thread.
#pragma once

#include "base/json.h"
#include "http/message.h"

namespace idetcd::directive {

class SharedAnswer : public std::enable_shared_from_this<SharedAnswer> {
 public:
  static constexpr size_t kMaxWaiting = 64;

  struct Value {
    http::Response response;
    nlohmann::json body;  // read once; discarded if it is none
  };
  using Make = std::function<void(const http::Reply& reply)>;
  using Use = std::function<void(const Value&)>;

  static std::shared_ptr<SharedAnswer> of(Make make, std::chrono::milliseconds interval) {
    return std::shared_ptr<SharedAnswer>(new SharedAnswer(std::move(make), interval));
  }

  // Calls `use` once, now or later; with 503 beyond kMaxWaiting. Calls `make` on this thread.
  void read(const Use& use);

 private:
  class Pending;
  SharedAnswer(Make make, std::chrono::milliseconds interval) : make_(std::move(make)), interval_(interval) {}
  void finish(http::Response response);

  const Make make_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<const Value> last_;
  std::chrono::steady_clock::time_point made_at_;
  bool is_making_ = false;
  std::vector<Use> waiting_;
};

}  // namespace idetcd::directive
