// The order in which the servers of one `forward` are asked, by `policy` and past answers. Loop thread only.
//
//   random       by chance, the faster the more often
//   round_robin  in turn, the faster the more often
//   sequential   in the order of the TOs
//
// Servers within 20 ms are equals: twice as slow beyond that is asked a quarter as often. Failing servers come last
// until they are due again. Servers that are down are included: the caller skips them.
#pragma once

#include <bitset>

#include "resolver/upstream_server.h"

namespace idetcd::resolver {

class UpstreamChoice {
 public:
  // Indices into the servers, each once.
  using Order = std::array<uint8_t, Forwarder::kMaxTargets>;

  explicit UpstreamChoice(ForwardContext& context) : context_(context) {}

  Order next(const std::shared_ptr<const UpstreamServers>& servers, BootClock::time_point now);

 private:
  // Servers as they stand now: those that are well, then the others.
  struct Field {
    Order order{};
    std::array<uint16_t, Forwarder::kMaxTargets> weights{};  // by index
    uint8_t count = 0;
    uint8_t well = 0;
  };

  Field survey(const UpstreamServers& servers, BootClock::time_point now) const;
  void shuffle(Field& field, uint8_t first, uint8_t end);
  void takeTurn(Field& field, const std::shared_ptr<const UpstreamServers>& servers);

  ForwardContext& context_;
  // round_robin: what each server of this set has to its credit.
  std::array<int32_t, Forwarder::kMaxTargets> credits_{};
  std::weak_ptr<const UpstreamServers> credited_;
};

// The servers that one question can go to, and which of them is next. Loop thread only.
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
