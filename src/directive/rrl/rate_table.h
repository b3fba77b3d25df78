// Accounts with an allowance a second, in a table of fixed size. One thread; no allocation but in the constructor. An
// account is the time up to which it has paid: each use moves it on by what one use costs. Credit is cut off at one
// second; a time in the future is debt, and uses are refused until it is over. Refused uses count too, up to a limit. A
// full row loses the account with the least debt; the key is hashed with a secret, so nobody can aim at a row.
#pragma once

#include "base/clock.h"

namespace idetcd::directive {

class RateTable {
 public:
  // At least `accounts` of them.
  explicit RateTable(size_t accounts);

  // Uses the account `key` (a hash) once, for `cost` time. 0: allowed; else the number of refusals since.
  uint32_t use(uint64_t key, std::chrono::nanoseconds cost, std::chrono::nanoseconds most_debt,
               BootClock::time_point now);

 private:
  struct Account {
    int64_t paid_until_ns = 0;  // of BootClock
    uint32_t key_high = 0;
    uint32_t refused = 0;
  };
  struct alignas(64) Row {  // a cache line
    std::array<Account, 4> accounts;
  };

  std::vector<Row> rows_;  // a power of two
};

}  // namespace idetcd::directive
