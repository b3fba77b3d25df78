#include "load/query_source.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace idetcd::bench {

std::optional<Selection> parseSelection(std::string_view text) {
  if (text == "uniform") return Selection::kUniform;
  if (text == "zipf") return Selection::kZipf;
  if (text == "sequential") return Selection::kSequential;
  return std::nullopt;
}

QuerySource::QuerySource(const Options& options)
    : options_(options), log_names_(std::log(static_cast<double>(options.names) + 1)), random_(options.seed * 2 + 1) {
  for (int i = 0; i < 16; ++i) random_.next();  // a small seed has few bits set, and so have the first values
}

uint32_t QuerySource::pickNumber() {
  switch (options_.selection) {
    case Selection::kUniform:
      return 1 + random_.below(options_.names);
    case Selection::kZipf:  // the inverse of ln(k) / ln(N + 1), which has steps of about 1/k
      return static_cast<uint32_t>(std::exp(random_.unit() * log_names_));
    case Selection::kSequential:
      break;
  }
  return 1 + sequence_++ % options_.names;
}

size_t QuerySource::writeZone(uint8_t* to) const {
  std::copy_n(options_.zone.data(), options_.zone.size(), to);
  return options_.zone.size();
}

size_t QuerySource::writeNumberedName(uint32_t number, uint8_t* to) const {
  char label[16] = "worker";
  const char* end = std::to_chars(label + 6, label + sizeof(label), number).ptr;
  to[0] = static_cast<uint8_t>(end - label);
  std::memcpy(to + 1, label, to[0]);
  return 1u + to[0] + writeZone(to + 1 + to[0]);
}

// Only the label: the zone follows.
size_t QuerySource::writeRandomName(uint8_t* to) {
  uint64_t bits = random_.next();
  *to++ = 17;
  *to++ = 'x';
  for (int i = 0; i < 16; ++i, bits >>= 4) *to++ = static_cast<uint8_t>("0123456789abcdef"[bits & 15]);
  return 18;
}

size_t QuerySource::next(uint8_t* to, Expectation& expectation) {
  expectation.exists = options_.nxdomain_percent == 0 || random_.below(100) >= options_.nxdomain_percent;
  const bool aaaa = options_.aaaa_percent > 0 && random_.below(100) < options_.aaaa_percent;
  expectation.type = aaaa ? dns::RrType::kAaaa : options_.type;

  std::memset(to, 0, dns::kHeaderSize);
  to[2] = 1;  // RD, as stub resolvers set it
  to[5] = 1;  // QDCOUNT
  size_t size = dns::kHeaderSize;
  const bool miss = options_.miss_percent > 0 && random_.below(100) < options_.miss_percent;
  if (expectation.exists && !miss) {
    expectation.number = pickNumber();
    size += writeNumberedName(expectation.number, to + size);
  } else {
    static constexpr uint8_t kAny[] = {3, 'a', 'n', 'y'};
    expectation.number = 0;
    size += writeRandomName(to + size);
    if (miss) {
      std::memcpy(to + size, kAny, sizeof(kAny));
      size += sizeof(kAny);
    }
    size += writeZone(to + size);
  }
  dns::store16(to + size, dns::code(expectation.type));
  dns::store16(to + size + 2, dns::code(dns::RrClass::kIn));
  size += 4;
  if (!options_.edns) return size;
  to[11] = 1;  // ARCOUNT
  static constexpr uint8_t kOpt[dns::kOptSize] = {0, 0, 41, dns::kDefaultUdpPayload >> 8,
                                                  dns::kDefaultUdpPayload & 0xff};
  std::memcpy(to + size, kOpt, sizeof(kOpt));
  return size + sizeof(kOpt);
}

}  // namespace idetcd::bench
