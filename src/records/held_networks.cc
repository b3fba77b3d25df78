#include "records/held_networks.h"

#include <bit>
#include <new>

namespace idetcd::records {

namespace {

// The first address of the smallest network that it is in.
IpAddress networkOf(const IpAddress& address) {
  std::array<uint8_t, 16> bytes;
  std::copy_n(address.data(), address.size(), bytes.begin());
  uint8_t& last = bytes[address.size() - 1];
  last = address.isV4() ? 0 : last & 0xf0;
  return IpAddress::fromBytes(std::span(bytes).first(address.size()));
}

}  // namespace

// Its links to the next ones, one for each level, stand behind it.
struct HeldNetworks::Network {
  IpAddress first;
  uint32_t held = 1;  // the writer's
};

HeldNetworks::Link* HeldNetworks::linksOf(Network* network) {
  static_assert(sizeof(Network) % alignof(Link) == 0);
  return reinterpret_cast<Link*>(network + 1);
}

HeldNetworks::~HeldNetworks() {
  epochs_.drain(this);
  for (Network* network = heads_[0].load(std::memory_order_relaxed); network != nullptr;)
    free(nullptr, std::exchange(network, linksOf(network)->load(std::memory_order_relaxed)));
}

void HeldNetworks::free(void* /*owner*/, void* network) { ::operator delete(network); }

// Those that lead past all networks before `first`.
std::array<HeldNetworks::Link*, HeldNetworks::kMaxHeight> HeldNetworks::linksTo(const IpAddress& first) const {
  std::array<Link*, kMaxHeight> links;
  Link* from = heads_.data();
  for (size_t level = kMaxHeight; level-- > 0;) {
    Network* next;
    // seq_cst: see EpochDomain::Reader::enter(). One that was removed meanwhile leads on as it did.
    while ((next = from[level].load(std::memory_order_seq_cst)) != nullptr && next->first < first) from = linksOf(next);
    links[level] = &from[level];
  }
  return links;
}

bool HeldNetworks::holdsWithin(const dns::AddressRange& range) const {
  const Network* found = linksTo(range.first)[0]->load(std::memory_order_seq_cst);
  return found != nullptr && found->first <= range.last;
}

// By chance, which nobody knows who chooses addresses.
size_t HeldNetworks::heightOf(const IpAddress& first) const {
  const uint64_t random = hashBytes(first.data(), first.size(), seed_);
  return std::min<size_t>(kMaxHeight, 1 + static_cast<size_t>(std::countr_zero(random)) / 2);
}

void HeldNetworks::add(const IpAddress& address) {
  const IpAddress first = networkOf(address);
  const auto links = linksTo(first);
  Network* const found = links[0]->load(std::memory_order_relaxed);
  if (found != nullptr && found->first == first) {
    ++found->held;
    return;
  }
  const size_t height = heightOf(first);
  Network* const fresh = ::new (::operator new(sizeof(Network) + height * sizeof(Link))) Network{.first = first};
  for (size_t i = 0; i < height; ++i) ::new (linksOf(fresh) + i) Link(links[i]->load(std::memory_order_relaxed));
  for (size_t i = 0; i < height; ++i) links[i]->store(fresh, std::memory_order_seq_cst);
}

void HeldNetworks::remove(const IpAddress& address) {
  const auto links = linksTo(networkOf(address));
  Network* const found = links[0]->load(std::memory_order_relaxed);
  assert(found != nullptr && found->first == networkOf(address));
  if (--found->held > 0) return;
  for (size_t i = kMaxHeight; i-- > 0;) {
    if (links[i]->load(std::memory_order_relaxed) != found) continue;
    links[i]->store(linksOf(found)[i].load(std::memory_order_relaxed), std::memory_order_seq_cst);
  }
  epochs_.retire(free, this, found);
}

}  // namespace idetcd::records
