#include "zones/denial.h"

#include <bit>

#include "dns/wire.h"
#include "zones/text_data.h"

namespace idetcd::zones {

namespace {

// SHA-1 (FIPS 180-4), of which the library's own way allocates memory.
class Sha1 {
 public:
  void add(std::span<const uint8_t> bytes) {
    for (const uint8_t byte : bytes) {
      block_[size_++ % kBlock] = byte;
      if (size_ % kBlock == 0) mix();
    }
  }
  Denial::Hash finish() {
    const uint64_t bits = uint64_t{size_} * 8;
    constexpr uint8_t kEnd = 0x80;
    constexpr uint8_t kZero = 0;
    add({&kEnd, 1});
    while (size_ % kBlock != kBlock - 8) add({&kZero, 1});
    std::array<uint8_t, 8> length;
    dns::store64(length.data(), bits);
    add(length);
    Denial::Hash hash;
    for (size_t i = 0; i < state_.size(); ++i) dns::store32(&hash[4 * i], state_[i]);
    return hash;
  }

 private:
  static constexpr size_t kBlock = 64;

  void mix() {
    std::array<uint32_t, 80> w;
    for (size_t i = 0; i < 16; ++i) w[i] = dns::load32(&block_[4 * i]);
    for (size_t i = 16; i < w.size(); ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    auto [a, b, c, d, e] = state_;
    for (size_t i = 0; i < w.size(); ++i) {
      const uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                         : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                         : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                                  : (b ^ c ^ d) + 0xca62c1d6;
      const uint32_t next = std::rotl(a, 5) + f + e + w[i];
      e = d;
      d = c;
      c = std::rotl(b, 30);
      b = a;
      a = next;
    }
    const std::array<uint32_t, 5> mixed{a, b, c, d, e};
    for (size_t i = 0; i < state_.size(); ++i) state_[i] += mixed[i];
  }

  std::array<uint32_t, 5> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  std::array<uint8_t, kBlock> block_;
  size_t size_ = 0;
};

bool isOfChain(const records::Entry& entry, const Denial::Parameters& parameters) {
  const auto found = Denial::parametersOf(entry.find(dns::code(dns::RrType::kNsec3)).wire.subspan(dns::kRecordHeadSize));
  return found && found->iterations == parameters.iterations && std::ranges::equal(found->salt, parameters.salt);
}

// Where the labels of a name begin, the first one first. Returns their number.
size_t labelStarts(std::span<const uint8_t> name, std::array<uint8_t, dns::kMaxNameLength>& starts) {
  size_t count = 0;
  for (size_t pos = 0; name[pos] != 0; pos += name[pos] + 1u) starts[count++] = static_cast<uint8_t>(pos);
  return count;
}

}  // namespace

bool isBefore(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  std::array<uint8_t, dns::kMaxNameLength> starts_a;
  std::array<uint8_t, dns::kMaxNameLength> starts_b;
  size_t left_a = labelStarts(a, starts_a);
  size_t left_b = labelStarts(b, starts_b);
  while (left_a > 0 && left_b > 0) {
    const size_t pos_a = starts_a[--left_a];
    const size_t pos_b = starts_b[--left_b];
    const auto label_a = a.subspan(pos_a + 1, a[pos_a]);
    const auto label_b = b.subspan(pos_b + 1, b[pos_b]);
    const int order = std::memcmp(label_a.data(), label_b.data(), std::min(label_a.size(), label_b.size()));
    if (order != 0) return order < 0;
    if (label_a.size() != label_b.size()) return label_a.size() < label_b.size();
  }
  return left_a < left_b;
}

std::optional<Denial::Parameters> Denial::parametersOf(std::span<const uint8_t> rdata) {
  constexpr uint8_t kSha1 = 1;
  if (rdata[0] != kSha1) return std::nullopt;
  return Parameters{dns::load16(&rdata[2]), rdata.subspan(5, rdata[4])};
}

void Denial::addNsec(const records::Entry& entry) { nsec_.push_back(&entry); }

void Denial::addNsec3(const records::Entry& entry, const Hash& hash) { nsec3_.push_back({hash, &entry}); }

void Denial::sort(const std::optional<Parameters>& parameters) {
  std::ranges::sort(nsec_, [](const auto* a, const auto* b) { return isBefore(a->name(), b->name()); });
  if (parameters) {
    parameters_ = *parameters;
    std::erase_if(nsec3_, [&](const Hashed& hashed) { return !isOfChain(*hashed.entry, parameters_); });
  }
  std::ranges::sort(nsec3_, {}, &Hashed::hash);
  kind_ = parameters && !nsec3_.empty() ? Kind::kNsec3 : !nsec_.empty() ? Kind::kNsec : Kind::kNone;
}

const records::Entry& Denial::nsecOf(std::span<const uint8_t> name) const {
  assert(kind_ == Kind::kNsec);
  const auto after = std::ranges::upper_bound(nsec_, name, isBefore, [](const auto* entry) { return entry->name(); });
  return after == nsec_.begin() ? *nsec_.back() : **std::prev(after);
}

Denial::Nsec3 Denial::nsec3Of(std::span<const uint8_t> name) const {
  assert(kind_ == Kind::kNsec3);
  const Hash hash = hashNsec3(name, parameters_);
  const auto after = std::ranges::upper_bound(nsec3_, hash, {}, &Hashed::hash);
  const Hashed& found = after == nsec3_.begin() ? nsec3_.back() : *std::prev(after);
  return {found.entry, found.hash == hash};
}

Denial::Hash hashNsec3(std::span<const uint8_t> name, const Denial::Parameters& parameters) {
  Sha1 first;
  first.add(name);
  first.add(parameters.salt);
  Denial::Hash hash = first.finish();
  for (unsigned i = 0; i < parameters.iterations; ++i) {
    Sha1 again;
    again.add(hash);
    again.add(parameters.salt);
    hash = again.finish();
  }
  return hash;
}

std::optional<Denial::Hash> parseNsec3Label(std::span<const uint8_t> label) {
  std::vector<uint8_t> decoded;
  const std::string_view text(reinterpret_cast<const char*>(label.data()), label.size());
  if (!decodeBase32Hex(text, decoded) || decoded.size() != Denial::kHashSize) return std::nullopt;
  Denial::Hash hash;
  std::ranges::copy(decoded, hash.begin());
  return hash;
}

}  // namespace idetcd::zones
