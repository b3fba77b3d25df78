#include "naming/name_pages.h"

namespace idetcd::naming {
namespace {

using runtime::Task;
using store::KeyValue;
using store::StoreError;
using store::StoreResult;

// How many keys the next page is to have. etcd counts all the rest of the range for every page of it, so pages grow
// towards a tenth of the range; but they grow in steps, and not while they end in paths that are worth leaping over.
class Pace {
 public:
  explicit Pace(int64_t fixed) : fixed_(fixed > 0), limit_(fixed > 0 ? fixed : kFirstPage) {}

  int64_t limit() const { return limit_; }

  // A page has come: so many keys, of `rest` in the range from its begin on. `leaps`: the next one begins behind a
  // path.
  void took(int64_t keys, int64_t rest, bool has_paths, bool leaps) {
    const bool leap_was_useful = !leapt_ || rest_expected_ - rest >= limit_;
    leapt_ = leaps;
    rest_expected_ = rest - keys;
    if (fixed_) return;
    if (leaps && leap_was_useful) {
      limit_ = std::max(kFirstPage, limit_ / kCarefully);
      return;
    }
    const int64_t most = std::clamp(rest / kPagesOfRange, kSmallPage, kLargePage);
    limit_ = std::max(limit_, std::min(most, limit_ * (has_paths ? kCarefully : kBoldly)));
  }

  // Few keys with huge values: the page shrinks until it fits, and stays so. False: it cannot be smaller.
  bool tooLarge() {
    if (limit_ == 1) return false;
    limit_ = std::max<int64_t>(1, limit_ / 8);
    fixed_ = true;
    return true;
  }

 private:
  static constexpr int64_t kFirstPage = 256;
  static constexpr int64_t kCarefully = 4;
  static constexpr int64_t kBoldly = 16;
  static constexpr int64_t kPagesOfRange = 10;
  static constexpr int64_t kSmallPage = 10'000;
  static constexpr int64_t kLargePage = 100'000;

  bool fixed_;
  int64_t limit_;
  bool leapt_ = false;
  int64_t rest_expected_ = 0;  // of the range, if the leap has left nothing out
};

bool endsBefore(const store::KeyRange& range, const std::string& begin) {
  return range.end != std::string(1, '\0') && begin >= range.end;
}

}  // namespace

Task<StoreResult<int64_t>> readNamePages(store::Source& source, std::vector<store::KeyRange> ranges,
                                         store::RangeOptions options, int64_t page_size,
                                         std::function<bool(std::vector<KeyValue>&&)> page) {
  Pace pace(page_size);
  int64_t first = options.revision;
  for (store::KeyRange& range : ranges) {
    for (bool more = true; more;) {
      options.limit = pace.limit();
      auto read = source.range(range, options);
      StoreResult<store::RangeResult> result = co_await read;
      if (!result) {
        if (result.error().code == ErrorCode::kCompacted && options.revision != 0) {
          options.revision = 0;
          continue;
        }
        if (result.error().code == ErrorCode::kTooLarge && pace.tooLarge()) continue;
        co_return tl::unexpected<StoreError>(std::move(result.error()));
      }
      if (options.revision == 0) options.revision = result->revision;
      if (first == 0) first = options.revision;
      options.cluster_id = result->cluster_id;
      const std::vector<KeyValue>& kvs = result->kvs;
      more = result->more && !kvs.empty();
      const bool leaps = more && isPath(kvs.back().key);
      // The first key that can follow the last one, if it is a name's.
      if (more) range.begin = leaps ? behindPath(kvs.back().key) : kvs.back().key + '\0';
      const bool has_paths = std::any_of(kvs.begin(), kvs.end(), [](const KeyValue& kv) { return isPath(kv.key); });
      pace.took(static_cast<int64_t>(kvs.size()), result->count, has_paths, leaps);
      if (leaps && endsBefore(range, range.begin)) more = false;
      if (!page(std::move(result->kvs))) co_return first;
    }
  }
  co_return first;
}

}  // namespace idetcd::naming
