// A name as a test wants it to be in one store.
#pragma once

#include "base/clock.h"
#include "naming/own_name.h"

namespace idetcd::naming {

class GivenName final : public OwnName {
 public:
  explicit GivenName(const MachineClock& clock) : clock_(clock) {}

  std::optional<Ownership> ownership() const override {
    if (being_confirmed || !owned || clock_.now() >= owned->deadline) return std::nullopt;
    return owned;
  }
  void noteGeneration() override {}
  bool isBeingConfirmed() const override { return being_confirmed; }
  void suspect() override {}
  const NodeRecord& record() const override { return record_; }
  std::string uuid() const override { return {}; }
  void setAddresses(const records::MemberAddresses&) override {}
  void setDrained(bool) override {}
  runtime::Task<bool> whenPublished(std::chrono::nanoseconds) override { co_return true; }

  void own(const std::string& name, int64_t token, std::chrono::nanoseconds time = std::chrono::seconds(18)) {
    owned = Ownership{.name = name, .token = token, .deadline = clock_.now() + time};
  }

  std::optional<Ownership> owned;
  bool being_confirmed = false;

 private:
  const MachineClock& clock_;
  const NodeRecord record_{};
};

}  // namespace idetcd::naming
