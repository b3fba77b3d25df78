// The client's side of DNS cookies towards one server (RFC 7873 §5.1, §5.3; RFC 9018 §3). No I/O; one thread. A client
// cookie is for one server and one of our addresses, drawn anew daily; while that address is unknown, there is none. If
// a server that gives cookies answers without one, the question is asked again over TCP; without one there too, none is
// expected for a while.
#pragma once

#include "base/clock.h"
#include "base/ip_address.h"
#include "base/random.h"
#include "dns/query.h"
#include "dns/types.h"

namespace idetcd::resolver {

// The OPT record of an upstream's answer, as it is meant for its neighbour (RFC 6891 §6.2.6: options are hop by hop).
// Nothing, of what cannot be read. No I/O; any thread.
struct AnswerOptions {
  dns::Rcode rcode = dns::Rcode::kNoError;              // all twelve bits
  std::optional<std::span<const uint8_t>> cookie = {};  // the first one
  std::optional<uint16_t> idle_timeout = {};            // edns-tcp-keepalive (RFC 7828 §3.1), in units of 100 ms
};
AnswerOptions optionsOf(std::span<const uint8_t> message);

class UpstreamCookie {
 public:
  static constexpr size_t kMaxOptionSize = 40;  // RFC 7873 §4
  using Client = std::array<uint8_t, dns::Cookie::kClientSize>;

  enum class CookieVerdict : uint8_t {
    kNone,     // the answer has none, nor has the server ever given one, or not lately
    kGood,     // it has ours; the server's is kept
    kMissing,  // it has none, though the server gives cookies
    kWrong,    // it is to another query, or no cookie at all
  };

  // `offered`: queries carry cookies at all.
  explicit UpstreamCookie(bool offered) : offered_(offered) {}

  // The data of the COOKIE option that a query carries now; empty: none.
  std::span<const uint8_t> option(BootClock::time_point now) const;
  // The beginning of that option. REQUIRES: it is not empty.
  const Client& client() const {
    assert(offered_);
    return client_;
  }

  // A query has left from `own`, which may be looked at once a second.
  bool wantsOwnAddress(BootClock::time_point now) const { return offered_ && now >= look_at_; }
  void noteOwnAddress(const IpAddress& own, SecureRandom& random, BootClock::time_point now);

  // Of an answer to a query that carried `sent`.
  CookieVerdict judge(const AnswerOptions& answer, const Client& sent, BootClock::time_point now);
  // It has answered over TCP without a cookie, or cannot be asked there.
  void noteStopped(BootClock::time_point now);
  // It refuses queries with a cookie that it answers without.
  void noteRefused(BootClock::time_point now);
  // It has answered a query with a cookie, whether with one or not.
  bool isTolerated() const { return tolerated_; }
  void noteTolerated() { tolerated_ = true; }
  bool isGiven() const { return size_ > dns::Cookie::kClientSize; }

 private:
  void draw(SecureRandom& random, BootClock::time_point now);

  const bool offered_;
  bool tolerated_ = false;
  Client client_{};
  std::array<uint8_t, kMaxOptionSize> option_{};  // client_, then what the server has given
  size_t size_ = 0;
  std::optional<IpAddress> own_;
  BootClock::time_point drawn_at_{};
  BootClock::time_point look_at_{};
  BootClock::time_point refused_until_{};
  BootClock::time_point stopped_until_{};
};

}  // namespace idetcd::resolver
