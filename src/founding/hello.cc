#include "founding/hello.h"

#include <set>

namespace idetcd::founding {

namespace {

constexpr size_t kMaxNetwork = 1024;  // addresses: a /22

}  // namespace

Hello::Hello(const Machine& self, std::vector<SocketAddress> addresses, bool has_names, Time now, RandomSource& random)
    : own_(self.addresses), random_(random), last_news_(now) {
  if (has_names) names_until_ = now + kNamePatience;
  if (!addresses.empty()) last_ = addresses[random_.next() % addresses.size()];
  if (addresses.size() > kAtOnce) {
    const auto own = std::ranges::find_if(addresses, [this](const SocketAddress& one) { return isOwn(one); });
    std::rotate(addresses.begin(), own, addresses.end());
  }
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (i >= kAtOnce) now += kStep;
    Peer* const peer = add(addresses[i], now);
    if (peer == nullptr || std::exchange(peer->configured, true)) continue;
    learned_.erase(std::exchange(peer->place, 0));
  }
}

Result<std::vector<SocketAddress>> Hello::addressesOf(const IpNetwork& network, uint16_t port) {
  const size_t bits = network.address.size() * 8;
  const size_t free = bits - network.prefix_length;
  if (free > 10) return fail(fmt::format("a network of at most a /{} can be searched", bits - 10));
  std::array<uint8_t, 16> bytes{};
  std::copy_n(network.address.data(), network.address.size(), bytes.begin());
  const size_t last = network.address.size() - 1;
  const size_t count = size_t{1} << free;
  static_assert(kMaxNetwork == size_t{1} << 10);
  // Not the network itself, and not its broadcast address (RFC 919); IPv6 has none, and routers use the first (RFC
  // 4291).
  const size_t first = free > 1 ? 1 : 0;
  const size_t end = network.address.isV4() && free > 1 ? count - 1 : count;
  const size_t low = (static_cast<size_t>(bytes[last - 1]) << 8 | bytes[last]) & ~(count - 1);
  std::vector<SocketAddress> addresses;
  for (size_t i = first; i < end; ++i) {
    bytes[last - 1] = static_cast<uint8_t>((low | i) >> 8);
    bytes[last] = static_cast<uint8_t>(low | i);
    addresses.push_back({IpAddress::fromBytes({bytes.data(), last + 1}), port});
  }
  return addresses;
}

void Hello::resolved(Time now, const std::vector<SocketAddress>& addresses, bool all) {
  if (all) names_until_.reset();
  for (auto& [address, peer] : peers_) peer.resolved = false;
  for (size_t i = 0; i < std::min(addresses.size(), kMaxNetwork); ++i) {
    if (Peer* const peer = add(addresses[i], now)) peer->resolved = true;
  }
}

std::vector<Hello::Question> Hello::due(Time now) {
  std::vector<Question> questions;
  const Duration pace = kStep * static_cast<int64_t>(peers_.size());
  for (auto it = peers_.begin(); it != peers_.end();) {
    auto& [address, peer] = *it;
    if (peer.next > now) {
      ++it;
    } else if (isForgotten(peer)) {
      it = forget(it);
    } else {
      questions.push_back(ask(address, peer, now));
      const bool is_soon = peer.silences == 1 && peers_.size() <= kAskedTwice;
      peer.next = now + jittered(std::max(peer.delay, is_soon ? std::min(pace, kAnswer / 2) : pace));
      peer.delay = std::min(peer.delay * 2, std::max(kLastDelay, 5 * pace));
      ++it;
    }
  }
  return questions;
}

std::optional<Hello::Question> Hello::next(Time now) {
  for (auto it = peers_.begin(); it != peers_.end();) it = isForgotten(it->second) ? forget(it) : std::next(it);
  if (peers_.empty()) return std::nullopt;
  auto it = peers_.upper_bound(last_);
  if (it == peers_.end()) it = peers_.begin();
  last_ = it->first;
  return ask(it->first, it->second, now);
}

std::optional<Hello::Question> Hello::next(Time now, const SocketAddress& address) {
  Peer* const peer = add(address, now);
  if (peer == nullptr || (peer->asked_at && now < *peer->asked_at + kFirstDelay)) return std::nullopt;
  return ask(address, *peer, now);
}

Hello::Question Hello::ask(const SocketAddress& address, Peer& peer, Time now) {
  if (peer.nonce == 0) peer.nonce = random_.next() | 1;
  peer.asked_at = now;
  if (!peer.settled_at) peer.settled_at = now + kAnswer;
  ++peer.silences;
  return {address, peer.nonce};
}

void Hello::unsent(Time now, const SocketAddress& to) {
  const auto found = peers_.find(to);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  if (peer.silences != 1 || !peer.settled_at || *peer.settled_at <= now) return;
  peer.silences = 0;
  peer.asked_at.reset();
  peer.settled_at.reset();
  peer.delay = kFirstDelay;
  peer.next = std::min(peer.next, now + jittered(kFirstDelay));
}

void Hello::asked(Time now, const SocketAddress& from, const Machine& machine) {
  Peer* const peer = add(from, now);
  if (peer == nullptr) return;
  // It is there now; but two that hear each other badly must not ask each other all the time.
  const auto known = machines_.find(machine.member.uuid);
  const bool news = known == machines_.end() || known->second.machine != machine;
  if (news || peer->silences > 0)
    peer->next = std::min(peer->next, std::max(now, peer->asked_at.value_or(Time()) + kFirstDelay));
}

bool Hello::answered(Time now, const SocketAddress& from, Nonce nonce, const HelloResponse& response) {
  const auto asked = peerAsked(from, nonce);
  if (asked == peers_.end()) return false;
  Peer& peer = asked->second;
  peer.nonce = 0;
  peer.settled_at = now;
  peer.silences = 0;
  peer.delay = kFirstDelay;
  peer.next = now + jittered(kRefresh);
  const Machine& machine = response.machine;
  if (const auto known = machines_.find(machine.member.uuid);
      known != machines_.end() || machines_.size() < kMaxMachines) {
    const bool counted = known != machines_.end() && known->second.machine.elector && now - known->second.at < kSeenFor;
    if (machine.elector && !counted) last_news_ = now;
    machines_[machine.member.uuid] = {machine, from, now};
  }
  for (const SocketAddress& address : response.peers) add(address, now);
  return true;
}

bool Hello::hasAskedAll(Time now) const {
  if (names_until_ && now < *names_until_) return false;
  return std::ranges::all_of(peers_, [now](const auto& one) {
    const Peer& peer = one.second;
    const bool counts = peer.configured || peer.resolved;
    return !counts || (peer.settled_at && now >= *peer.settled_at);
  });
}

std::vector<SocketAddress> Hello::others(const std::vector<Member>& members) const {
  std::set<SocketAddress> known;
  for (const Member& member : members) {
    if (const auto seen = machines_.find(member.uuid); seen != machines_.end()) known.insert(seen->second.address);
  }
  std::vector<SocketAddress> others;
  for (const auto& [address, peer] : peers_) {
    if (!known.contains(address)) others.push_back(address);
  }
  std::rotate(others.begin(), std::ranges::upper_bound(others, own_.front()), others.end());
  return others;
}

std::vector<Hello::Seen> Hello::electors(Time now) const {
  std::vector<Seen> seen;
  for (const auto& [uuid, one] : machines_) {
    if (one.machine.elector && now - one.at < kSeenFor) seen.push_back(one);
  }
  return seen;
}

std::vector<SocketAddress> Hello::peers(Time now) {
  std::erase_if(machines_, [now](const auto& one) { return now - one.second.at >= kSeenFor; });
  std::vector<SocketAddress> chosen;  // a random sample (Knuth, 3.4.2, algorithm R)
  size_t offered = 0;
  for (const auto& [uuid, seen] : machines_) {
    if (chosen.size() < kMaxPeers) {
      chosen.push_back(seen.address);
    } else if (const uint64_t place = random_.next() % (offered + 1); place < kMaxPeers) {
      chosen[place] = seen.address;
    }
    ++offered;
  }
  return chosen;
}

// Null: no other machine is there, or there is no room.
Hello::Peer* Hello::add(const SocketAddress& address, Time next) {
  if (isOwn(address) || address.port == 0 || address.ip.isUnspecified() || address.ip.isMulticast()) return nullptr;
  const auto known = peers_.find(address);
  if (known != peers_.end()) return &known->second;
  if (peers_.size() >= kMaxMachines && !makeRoom()) return nullptr;
  Peer& peer = peers_[address];
  peer.next = next;
  peer.place = ++last_place_;
  learned_[peer.place] = address;
  return &peer;
}

// The first one that does not answer; those that do queue up anew. Few are looked at, since many may want room.
bool Hello::makeRoom() {
  constexpr int kLooks = 16;
  for (int i = 0; i < kLooks && !learned_.empty(); ++i) {
    const auto first = peers_.find(learned_.begin()->second);
    Peer& peer = first->second;
    const bool answers = peer.asked_at && peer.silences == 0;
    if (!peer.resolved && !answers) {
      forget(first);
      return true;
    }
    learned_.erase(std::exchange(peer.place, ++last_place_));
    learned_[peer.place] = first->first;
  }
  return false;
}

std::map<SocketAddress, Hello::Peer>::iterator Hello::forget(std::map<SocketAddress, Peer>::iterator peer) {
  learned_.erase(peer->second.place);
  return peers_.erase(peer);
}

// From a half to one and a half times the mean.
Hello::Duration Hello::jittered(Duration mean) {
  return mean / 2 + Duration(static_cast<int64_t>(random_.next() % static_cast<uint64_t>(mean.count())));
}

// A machine of several addresses answers from any of them.
std::map<SocketAddress, Hello::Peer>::iterator Hello::peerAsked(const SocketAddress& from, Nonce nonce) {
  if (nonce == 0) return peers_.end();
  const auto it = peers_.find(from);
  if (it != peers_.end() && it->second.nonce == nonce) return it;
  return std::find_if(peers_.begin(), peers_.end(), [nonce](const auto& one) { return one.second.nonce == nonce; });
}

}  // namespace idetcd::founding
