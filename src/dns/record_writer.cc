#include "dns/record_writer.h"

#include "dns/record.h"

namespace idetcd::dns {

namespace {

constexpr size_t kFewRecords = 8;  // as many as most responses have
constexpr size_t kMaxPointer = 0x3fff;

constexpr auto kLayouts = std::to_array<RdataLayout>({
    {RrType::kNs, 0, 1, 0, true},
    {RrType::kMd, 0, 1, 0, true},
    {RrType::kMf, 0, 1, 0, true},
    {RrType::kCname, 0, 1, 0, true},
    {RrType::kSoa, 0, 2, 20, true},
    {RrType::kMb, 0, 1, 0, true},
    {RrType::kMg, 0, 1, 0, true},
    {RrType::kMr, 0, 1, 0, true},
    {RrType::kPtr, 0, 1, 0, true},
    {RrType::kMinfo, 0, 2, 0, true},
    {RrType::kMx, 2, 1, 0, true},
    {RrType::kRp, 0, 2, 0, false},
    {RrType::kAfsdb, 2, 1, 0, false},
    {RrType::kRt, 2, 1, 0, false},
    {RrType::kPx, 2, 2, 0, false},
    {RrType::kSrv, 6, 1, 0, false},
    {RrType::kKx, 2, 1, 0, false},
    {RrType::kDname, 0, 1, 0, false},
});

}  // namespace

const RdataLayout* layoutOf(uint16_t type) {
  const auto it =
      std::find_if(kLayouts.begin(), kLayouts.end(), [type](const auto& l) { return code(l.type) == type; });
  return it != kLayouts.end() ? &*it : nullptr;
}

RecordWriter::RecordWriter(const Query& query, size_t size, NameWork& work) : base_(query.question_end), work_(work) {
  body_.reserve(size);
  ttl_offsets_.reserve(kFewRecords);
  fold(query.name());
  rememberLabels(query.qname_size - 1u, query.qname_size, size_t{kHeaderSize});
}

bool RecordWriter::append(std::span<const uint8_t> message, const RecordView& record, std::span<const uint8_t> owner,
                          uint32_t ttl) {
  putName(owner, true);
  put16(record.type);
  put16(record.klass);
  ttl_offsets_.push_back(static_cast<uint16_t>(body_.size()));
  put16(static_cast<uint16_t>(ttl >> 16));
  put16(static_cast<uint16_t>(ttl));
  const size_t length = body_.size();
  put16(0);
  if (!putRdata(message, record) || work_.isSpent()) return false;
  if (base_ + body_.size() > kMaxMessageSize) return false;
  store16(&body_[length], static_cast<uint16_t>(body_.size() - length - 2));
  return true;
}

bool RecordWriter::putRdata(std::span<const uint8_t> message, const RecordView& record) {
  const auto rdata = message.subspan(record.rdata, record.rdata_size);
  if (record.type == code(RrType::kNaptr)) return putNaptr(message, record);
  const RdataLayout* layout = layoutOf(record.type);
  if (layout == nullptr) {
    put(rdata);
    return true;
  }
  if (rdata.size() < layout->before) return false;
  put(rdata.first(layout->before));
  size_t pos = record.rdata + layout->before;
  const size_t end = record.rdata + record.rdata_size;
  for (int i = 0; i < layout->names; ++i) {
    if (!putExpanded(message, pos, end, layout->compress)) return false;
  }
  if (end - pos != layout->after) return false;
  put(message.subspan(pos, layout->after));
  return true;
}

// Order, preference, three character-strings, a name (RFC 3403 §4.1).
bool RecordWriter::putNaptr(std::span<const uint8_t> message, const RecordView& record) {
  const size_t end = record.rdata + record.rdata_size;
  size_t pos = record.rdata + 4;
  for (int i = 0; i < 3; ++i) {
    if (pos >= end) return false;
    pos += message[pos] + 1u;
  }
  if (pos >= end) return false;
  put(message.subspan(record.rdata, pos - record.rdata));
  return putExpanded(message, pos, end, false) && pos == end;
}

bool RecordWriter::putExpanded(std::span<const uint8_t> message, size_t& pos, size_t end, bool compress) {
  ExpandedName name;
  const size_t after = expandName(message, pos, name, work_);
  if (after == 0 || after > end) return false;
  putName(name.span(), compress);
  pos = after;
  return true;
}

void RecordWriter::putName(std::span<const uint8_t> name, bool compress) {
  fold(name);
  size_t pos = 0;
  std::optional<uint16_t> target;
  while (compress && name[pos] != 0) {
    target = find(pos, name.size() - pos);
    if (target) break;
    pos += name[pos] + 1u;
  }
  rememberLabels(target ? pos : name.size() - 1, name.size(), base_ + body_.size());
  put(name.first(target ? pos : name.size()));
  if (target) put16(pointerTo(*target));
}

// Writes the name in lower case behind those that are remembered. REQUIRES: kReadSlack bytes behind it are readable.
void RecordWriter::fold(std::span<const uint8_t> name) {
  work_.spend(1 + name.size() / 32);
  foldCase(name.data(), name.size(), &folded_[folded_size_]);
}

// The name that ends like the folded name does from `pos` on.
std::optional<uint16_t> RecordWriter::find(size_t pos, size_t size) const {
  if (!work_.spend(1 + suffix_count_ / 2)) return std::nullopt;  // two sizes compared are as good as a jump
  const uint8_t* wanted = &folded_[folded_size_ + pos];
  for (size_t i = 0; i < suffix_count_; ++i) {
    const Suffix& suffix = suffixes_[i];
    if (suffix.size == size && std::memcmp(&folded_[suffix.at], wanted, size) == 0) return suffix.offset;
  }
  return std::nullopt;
}

// The labels before `end` of the folded name, which has `size` bytes and is written at `offset` of the message.
void RecordWriter::rememberLabels(size_t end, size_t size, size_t offset) {
  if (end == 0 || kFoldedSize - folded_size_ < size + kMaxNameLength) return;  // room for one more
  for (size_t pos = 0; pos < end; pos += folded_[folded_size_ + pos] + 1u) {
    if (offset + pos > kMaxPointer || suffix_count_ == kMaxRemembered) break;
    suffixes_[suffix_count_++] = {static_cast<uint16_t>(folded_size_ + pos), static_cast<uint16_t>(size - pos),
                                  static_cast<uint16_t>(offset + pos)};
  }
  folded_size_ += size;
}

}  // namespace idetcd::dns
