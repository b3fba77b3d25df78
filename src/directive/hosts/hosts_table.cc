#include "directive/hosts/hosts_table.h"

#include "dns/name.h"
#include "dns/record.h"
#include "records/entry.h"

namespace idetcd::directive {

using dns::RrType;

namespace {

constexpr std::string_view kBlank = " \t\v\f\r";
// Of one name: leaves room for the question, OPT and what else is in a message of 65,535 bytes.
constexpr size_t kMaxRecordBytes = 60000;

// Takes what is in front of the next of `separators` off `text`.
std::string_view takeUntil(std::string_view& text, std::string_view separators) {
  const std::string_view token = text.substr(0, text.find_first_of(separators));
  text.remove_prefix(std::min(text.size(), token.size() + 1));
  return token;
}

// The next word of `line`; empty at its end.
std::string_view takeWord(std::string_view& line) {
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(kBlank)));
  return takeUntil(line, kBlank);
}

constexpr std::array<uint8_t, 2> kWildcardLabel{1, '*'};

// A name of an asterisk alone is none.
bool isWildcard(std::span<const uint8_t> name) {
  return name.size() > kWildcardLabel.size() + 1 &&
         std::ranges::equal(name.first(kWildcardLabel.size()), kWildcardLabel);
}

// One record, its names and data in a common heap of bytes.
struct Item {
  uint64_t hash;  // of the owner
  uint32_t owner;
  uint32_t rdata;
  RrType type;
  uint8_t owner_size;
  uint8_t rdata_size;
};

class Collector {
 public:
  explicit Collector(const HostsTable::Options& options) : options_(options) {}

  Result<void> addText(std::string_view text) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    while (!text.empty()) {
      std::string_view line = takeUntil(text, "\n");
      addLine(takeUntil(line, "#"));
      if (names_ > HostsTable::kMaxNames) return fail(fmt::format("more than {} names", HostsTable::kMaxNames));
    }
    return {};
  }

  // Those of one owner and type next to each other, in the order of the text.
  const std::vector<Item>& sorted() {
    std::stable_sort(items_.begin(), items_.end(), [this](const Item& a, const Item& b) {
      if (a.hash != b.hash) return a.hash < b.hash;
      const auto owner_a = owner(a), owner_b = owner(b);
      if (!std::ranges::equal(owner_a, owner_b)) return std::ranges::lexicographical_compare(owner_a, owner_b);
      return a.type < b.type;
    });
    return items_;
  }

  std::span<const uint8_t> owner(const Item& item) const { return {heap_.data() + item.owner, item.owner_size}; }
  // Of the items [begin, end), each once.
  const std::vector<std::span<const uint8_t>>& distinctRdata(size_t begin, size_t end) {
    distinct_.clear();
    std::unordered_set<std::string_view> seen;
    for (size_t i = begin; i < end; ++i) {
      const std::span<const uint8_t> rdata(heap_.data() + items_[i].rdata, items_[i].rdata_size);
      const std::string_view text(reinterpret_cast<const char*>(rdata.data()), rdata.size());
      if (end - begin == 1 || seen.insert(text).second) distinct_.push_back(rdata);
    }
    return distinct_;
  }
  // The addresses with a PTR, in order, each once.
  std::vector<IpAddress> takeReversed() {
    std::ranges::sort(reversed_);
    reversed_.erase(std::unique(reversed_.begin(), reversed_.end()), reversed_.end());
    reversed_.shrink_to_fit();
    return std::move(reversed_);
  }
  std::unordered_set<uint64_t> above;  // HostsTable::above_

  bool isOwnerEqual(const Item& a, const Item& b) const {
    return a.hash == b.hash && std::ranges::equal(owner(a), owner(b));
  }

 private:
  struct Stored {
    uint64_t hash = 0;
    uint32_t offset = 0;
    uint8_t size = 0;
  };

  // The names of one address.
  void addLine(std::string_view line) {
    const auto address = parseHostsAddress(takeWord(line));
    if (!address) return;
    const RrType type = address->isV4() ? RrType::kA : RrType::kAaaa;
    Stored stored_address, stored_reverse;  // once a line has a name
    for (std::string_view word = takeWord(line); !word.empty(); word = takeWord(line)) {
      const auto name = dns::Name::parse(word);
      if (!name || !isOurs(*name)) continue;
      if (stored_address.size == 0) stored_address = store({address->data(), address->size()});
      const Stored stored_name = store(name->wire());
      addItem(stored_name, type, stored_address);
      noteAbove(name->wire());
      if (options_.reverse && !isWildcard(name->wire())) {
        if (stored_reverse.size == 0) {
          stored_reverse = store(dns::reverseName(*address).wire());
          reversed_.push_back(*address);
        }
        addItem(stored_reverse, RrType::kPtr, stored_name);
      }
      ++names_;
    }
  }

  void noteAbove(std::span<const uint8_t> name) {
    while (name.size() > 1) {
      name = name.subspan(size_t{1} + name.front());
      const bool is_new = name.size() > 1 && above.insert(hashBytes(name.data(), name.size(), options_.seed)).second;
      if (!is_new) return;  // nor are those above it
    }
  }

  bool isOurs(const dns::Name& name) const {
    return options_.zones.empty() || std::any_of(options_.zones.begin(), options_.zones.end(),
                                                 [&name](const dns::Name& zone) { return name.isWithin(zone); });
  }

  // kMaxNames times the longest name is less than 2^32 bytes, and a text of that size is never read.
  Stored store(std::span<const uint8_t> bytes) {
    const Stored stored{hashBytes(bytes.data(), bytes.size(), options_.seed), static_cast<uint32_t>(heap_.size()),
                        static_cast<uint8_t>(bytes.size())};
    heap_.insert(heap_.end(), bytes.begin(), bytes.end());
    return stored;
  }

  void addItem(const Stored& owner, RrType type, const Stored& rdata) {
    items_.push_back({owner.hash, owner.offset, rdata.offset, type, owner.size, rdata.size});
  }

  const HostsTable::Options& options_;
  std::vector<uint8_t> heap_;
  std::vector<Item> items_;
  std::vector<IpAddress> reversed_;
  std::vector<std::span<const uint8_t>> distinct_;
  size_t names_ = 0;
};

}  // namespace

std::optional<IpAddress> parseHostsAddress(std::string_view text) {
  const auto address = IpAddress::parse(text.substr(0, text.find('%')));
  return address ? std::optional(address->unmapped()) : std::nullopt;
}

Result<std::unique_ptr<const HostsTable>> HostsTable::build(std::span<const std::string_view> texts,
                                                            const Options& options) {
  Collector collector(options);
  for (const std::string_view text : texts) {
    if (auto added = collector.addText(text); !added) return tl::unexpected(added.error());
  }
  const std::vector<Item>& items = collector.sorted();
  auto hosts = std::make_unique<HostsTable>(options.seed);
  hosts->reversed_ = collector.takeReversed();
  hosts->above_ = std::move(collector.above);
  for (size_t i = 0; i < items.size();) {
    const Item& first = items[i];
    hosts->has_wildcards_ |= isWildcard(collector.owner(first));
    records::EntryBuilder builder(collector.owner(first), 0);
    size_t bytes = 0;
    while (i < items.size() && collector.isOwnerEqual(items[i], first)) {
      const size_t rrset = i;
      while (i < items.size() && items[i].type == items[rrset].type && collector.isOwnerEqual(items[i], first)) ++i;
      for (const auto& rdata : collector.distinctRdata(rrset, i)) {
        bytes += dns::kRecordHeadSize + rdata.size();
        if (bytes > kMaxRecordBytes) {
          ++hosts->dropped_count_;
          continue;
        }
        builder.add(items[rrset].type, options.ttl_seconds, rdata);
      }
    }
    hosts->table_.put(builder.build(hosts->table_.arena(), 0));
  }
  return hosts;
}

bool HostsTable::isAboveHeld(std::span<const uint8_t> name) const {
  const auto range = reversed_.empty() ? std::nullopt : dns::addressesBelow(name);
  if (!range) return false;
  const auto found = std::ranges::lower_bound(reversed_, range->first);
  return found != reversed_.end() && *found <= range->last;
}

// The first label replaced by an asterisk (RFC 4592 §2.1.1).
const records::Entry* HostsTable::lookUpWildcard(std::span<const uint8_t> name) const {
  if (name.front() == 0) return nullptr;  // the root
  const std::span<const uint8_t> parent = name.subspan(size_t{1} + name.front());
  std::array<uint8_t, dns::kMaxNameLength> wildcard;  // no longer than the name: no label is shorter
  std::ranges::copy(parent, std::ranges::copy(kWildcardLabel, wildcard.begin()).out);
  const std::span<const uint8_t> owner(wildcard.data(), kWildcardLabel.size() + parent.size());
  return table_.find(hashBytes(owner.data(), owner.size(), seed_), owner);
}

}  // namespace idetcd::directive
