#include "dns/address_order.h"

#include "dns/record.h"

namespace idetcd::dns {

namespace {

void preferAddresses(std::span<uint8_t> records, size_t record_size, std::span<const IpNetwork> preferred) {
  struct Ranked {
    size_t rank;
    size_t at;
  };
  std::vector<Ranked> ranked;
  for (size_t at = 0; at < records.size(); at += record_size) {
    const auto address = IpAddress::fromBytes(records.subspan(at + kRecordHeadSize, record_size - kRecordHeadSize));
    const auto network = std::find_if(preferred.begin(), preferred.end(),
                                      [&address](const IpNetwork& candidate) { return candidate.contains(address); });
    ranked.push_back({static_cast<size_t>(network - preferred.begin()), at});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) { return a.rank < b.rank; });
  const std::vector<uint8_t> before(records.begin(), records.end());
  auto to = records.begin();
  for (const Ranked& record : ranked) {
    const auto from = before.begin() + static_cast<ptrdiff_t>(record.at);
    to = std::copy(from, from + static_cast<ptrdiff_t>(record_size), to);
  }
}

}  // namespace

void orderAddresses(std::span<uint8_t> records, size_t record_size, const AddressOrder& order) {
  const size_t count = records.size() / record_size;
  const auto first = static_cast<ptrdiff_t>(order.rotation % count * record_size);
  std::rotate(records.begin(), records.begin() + first, records.end());
  if (!order.preferred.empty()) preferAddresses(records, record_size, order.preferred);
}

}  // namespace idetcd::dns
