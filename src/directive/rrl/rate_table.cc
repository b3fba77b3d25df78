#include "directive/rrl/rate_table.h"

#include <bit>

namespace idetcd::directive {

namespace {

constexpr std::chrono::nanoseconds kMostCredit = std::chrono::seconds(1);

}  // namespace

RateTable::RateTable(size_t accounts)
    : rows_(std::bit_ceil((accounts + std::tuple_size_v<decltype(Row::accounts)> - 1) /
                          std::tuple_size_v<decltype(Row::accounts)>)) {}

uint32_t RateTable::use(uint64_t key, std::chrono::nanoseconds cost, std::chrono::nanoseconds most_debt,
                        BootClock::time_point now) {
  auto& accounts = rows_[key & (rows_.size() - 1)].accounts;
  const auto key_high = static_cast<uint32_t>(key >> 32);
  auto* account = std::ranges::find(accounts, key_high, &Account::key_high);
  if (account == accounts.end()) {
    account = std::ranges::min_element(accounts, {}, &Account::paid_until_ns);
    *account = {.paid_until_ns = std::numeric_limits<int64_t>::min(), .key_high = key_high, .refused = 0};
  }
  const int64_t now_ns = std::chrono::nanoseconds(now.time_since_epoch()).count();
  const int64_t paid_ns = std::max(account->paid_until_ns, now_ns - kMostCredit.count()) + cost.count();
  account->paid_until_ns = std::min(paid_ns, now_ns + most_debt.count());
  if (paid_ns <= now_ns) {
    account->refused = 0;
  } else {
    ++account->refused;
  }
  return account->refused;
}

}  // namespace idetcd::directive
