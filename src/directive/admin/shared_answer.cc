#include "directive/admin/shared_answer.h"

#include "control/control.h"

namespace idetcd::directive {

// Shared by the copies of one reply.
class SharedAnswer::Pending {
 public:
  explicit Pending(std::shared_ptr<SharedAnswer> owner) : owner_(std::move(owner)) {}
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() { answer(control::refuse(500, "there was no answer")); }

  void answer(http::Response response) {
    if (!answered_.exchange(true)) owner_->finish(std::move(response));
  }

 private:
  const std::shared_ptr<SharedAnswer> owner_;
  std::atomic<bool> answered_{false};
};

void SharedAnswer::read(const Use& use) {
  std::shared_ptr<const Value> known;
  {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (!is_making_ && last_ && now - made_at_ < interval_) {
      known = last_;
    } else if (waiting_.size() == kMaxWaiting) {
      known = std::make_shared<const Value>(Value{control::refuse(503, "too many are waiting"), {}});
    } else {
      waiting_.push_back(use);
      if (std::exchange(is_making_, true)) return;
      made_at_ = now;
    }
  }
  if (known) return use(*known);
  const auto pending = std::make_shared<Pending>(shared_from_this());
  make_([pending](http::Response response) { pending->answer(std::move(response)); });
}

void SharedAnswer::finish(http::Response response) {
  auto value = std::make_shared<Value>(Value{std::move(response), {}});
  value->body = parseJson(value->response.body);
  std::vector<Use> waiting;
  {
    const std::lock_guard lock(mutex_);
    last_ = value;
    is_making_ = false;
    waiting.swap(waiting_);
  }
  for (const Use& use : waiting) use(*value);
}

}  // namespace idetcd::directive
