// The servers that one question can go to, and which of them is next. Loop thread only.
#pragma once

#include <bitset>

#include "resolver/upstream_choice.h"
#include "resolver/upstream_set.h"

namespace idetcd::resolver {

class Candidates {
 public:
  Candidates(ForwardContext& context, std::shared_ptr<const UpstreamServers> servers,
             const UpstreamChoice::Order& order)
      : context_(context), servers_(std::move(servers)), order_(order) {}

  bool isEmpty() const { return servers_->empty(); }
  UpstreamServer& at(uint8_t index) const { return *(*servers_)[index]; }

  // The next one that is not down.
  std::optional<uint8_t> next() const;
  // Where there is none: one of those that are down, at random. None while one that is well may still answer.
  std::optional<uint8_t> nextOfDown() const;
  // The next one that is well, where the policy makes no difference between them.
  std::optional<uint8_t> nextEqual() const;
  // Whether it may be asked, the first time for this question.
  bool mayBeAsked(uint8_t index) const { return mayAskMore() && !tried_[index] && !failed_[index]; }
  // Whether `max_connect_attempts` leaves an attempt.
  bool mayAskMore() const {
    return context_.options.max_connect_attempts == 0 || attempts_ < context_.options.max_connect_attempts;
  }

  // A server is turned to, be it the same one.
  void noteAttempt() { ++attempts_; }
  void noteTried(uint8_t index) { tried_.set(index); }
  void forgetTried(uint8_t index) { tried_.reset(index); }
  // For good, as far as this question is concerned.
  void noteFailed(uint8_t index) { failed_.set(index); }
  void noteAllFailed() { failed_.set(); }
  // It has given an answer of no use.
  void noteRejected(uint8_t index) { rejected_.set(index); }
  // A server has answered: those that would not are told so.
  void noteAnswered(uint8_t index, BootClock::time_point now);

 private:
  using Servers = std::bitset<Forwarder::kMaxTargets>;

  ForwardContext& context_;
  const std::shared_ptr<const UpstreamServers> servers_;
  const UpstreamChoice::Order order_;
  Servers tried_;
  Servers failed_;
  Servers rejected_;
  size_t attempts_ = 0;
};

}  // namespace idetcd::resolver
