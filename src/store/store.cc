#include "store/store.h"

namespace idetcd::store {
namespace {

// etcd counts all that is left of a range for each page of it: so pages are a tenth of the range, within what memory
// bears.
constexpr int64_t kPagesOfRange = 10;
constexpr int64_t kSmallPage = 10'000;
constexpr int64_t kLargePage = 100'000;

}  // namespace

KeyRange KeyRange::prefix(std::string_view prefix) {
  // The end is the prefix with its last byte below 0xFF counted up, and what follows cut off.
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xFF) end.pop_back();
  if (end.empty()) return {prefix.empty() ? std::string(1, '\0') : std::string(prefix), std::string(1, '\0')};
  end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return {std::string(prefix), std::move(end)};
}

Task<void> Store::identifyEndpoints() { co_return; }

Task<StoreResult<int64_t>> rangePaginated(Store& store, KeyRange range, RangeOptions options, int64_t page_size,
                                          std::function<bool(std::vector<KeyValue>&&)> page) {
  assert(!options.sort_by_create_revision);
  bool may_grow = page_size <= 0;
  options.limit = may_grow ? kSmallPage : page_size;
  while (true) {
    auto read = store.range(range, options);
    auto result = co_await read;
    if (!result) {
      // Few keys with huge values: the page shrinks until it fits, and stays so.
      if (result.error().code != ErrorCode::kTooLarge || options.limit == 1)
        co_return tl::unexpected<StoreError>(std::move(result.error()));
      options.limit = std::max<int64_t>(1, options.limit / 8);
      may_grow = false;
      continue;
    }
    if (std::exchange(may_grow, false))
      options.limit = std::clamp(result->count / kPagesOfRange, kSmallPage, kLargePage);
    if (options.revision == 0) options.revision = result->revision;
    options.cluster_id = result->cluster_id;
    const bool more = result->more && !result->kvs.empty();
    // The first key that can follow the last one. Taken before the page is given away.
    if (more) range.begin = result->kvs.back().key + '\0';
    if (!page(std::move(result->kvs)) || !more) co_return options.revision;
  }
}

}  // namespace idetcd::store
