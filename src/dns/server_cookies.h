// The server's side of DNS cookies (RFC 7873): cookies that any server with the same secret makes and recognises
// (RFC 9018). Immutable; any thread; no allocation but in the constructor.
//
//   0         1          4           8                  16
//   +---------+----------+-----------+------------------+
//   | version | reserved | timestamp | hash             |   hash: SipHash-2-4 of the client cookie, the eight bytes in
//   |    1    |    0     |           |                  |   front of it, and the client's address
//   +---------+----------+-----------+------------------+
#pragma once

#include "base/ip_address.h"
#include "dns/query.h"

namespace idetcd::dns {

class ServerCookies {
 public:
  // The first secret makes cookies, all of them are recognised: of several servers, or of one over time, one after the
  // other is given a new one. REQUIRES: there is one.
  explicit ServerCookies(std::vector<SipHashKey> secrets) : secrets_(std::move(secrets)), daily_(false) {}
  // With a random secret that nobody else knows. Each day has one of its own, made from it (RFC 7873 §7.1 asks for a new
  // one after some 26 hours).
  static ServerCookies withRandomSecret() { return {randomSecret(), true}; }

  // Judges the cookie that a query came with, and sets the one that the response carries: the same one for half an hour,
  // then a new one. `now_seconds`: since 1970, modulo 2^32. REQUIRES: query.asksFor(kAsksCookie).
  void apply(Query& query, const IpAddress& client, uint32_t now_seconds) const;

 private:
  ServerCookies(SipHashKey secret, bool daily) : secrets_{secret}, daily_(daily) {}
  static SipHashKey randomSecret();
  SipHashKey secretAt(const SipHashKey& secret, uint32_t time_seconds) const;
  std::array<uint8_t, 8> hash(const Cookie& cookie, const IpAddress& client, const SipHashKey& secret) const;
  bool isMadeWith(const SipHashKey& secret, const Cookie& cookie, const IpAddress& client) const;

  std::vector<SipHashKey> secrets_;
  bool daily_;
};

}  // namespace idetcd::dns
