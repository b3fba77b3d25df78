// Accounts with an allowance a second, as many as fit into a table of fixed size. One thread; no allocation but in the
// constructor.
//
// An account is a point in time up to which it is paid: each use moves it on by the time that one use earns. What is
// more than a second in the past is cut off, so a second's worth may be used at once; what is in the future is debt, and
// uses are refused until it is over. Refused ones count too, up to a limit of debt: who goes on is refused on.
//
// A full row of the table loses the account with the least debt: mostly one that is as good as new. Who floods stays,
// and the key is hashed with a secret, so that nobody can aim at the row of another.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace idetcd::directive {

class RateTable {
 public:
  // At least `accounts` of them.
  explicit RateTable(size_t accounts);

  // Uses the account `key`, a hash, once; `cost` is the time in which one use is earned. Returns 0 if that was allowed,
  // else how many uses have been refused since one was.
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
