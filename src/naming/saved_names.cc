#include "naming/saved_names.h"

#include "base/file.h"
#include "base/hash.h"
#include "dns/name.h"
#include "dns/wire.h"
#include "records/epoch.h"
#include "records/member_data.h"

namespace idetcd::naming {
namespace {

constexpr std::string_view kMagic = "idetcdN2";
constexpr std::string_view kFormerMagic = "idetcdN1";
constexpr size_t kMaxFileBytes = size_t{2} << 30;  // over ten million names
constexpr uint8_t kHasIpv4 = 1;
constexpr uint8_t kHasIpv6 = 2;
constexpr uint8_t kIsMember = 4;

template <typename T>
void appendNumber(std::string& bytes, T number) {
  char raw[sizeof number];
  std::memcpy(raw, &number, sizeof number);
  bytes.append(raw, sizeof number);
}

// Keeps the hash of what it lets through, and collects it into large writes.
class Writer {
 public:
  explicit Writer(FileReplacement& file) : file_(file) { XXH3_64bits_reset(&hash_); }

  std::string& buffer() { return buffer_; }
  Result<void> flushIfFull() {
    constexpr size_t kFull = size_t{1} << 20;
    return buffer_.size() < kFull ? Result<void>() : flush();
  }
  Result<void> finish() {
    if (auto flushed = flush(); !flushed) return flushed;
    appendNumber(buffer_, uint64_t{XXH3_64bits_digest(&hash_)});
    return file_.append(buffer_);
  }

 private:
  Result<void> flush() {
    XXH3_64bits_update(&hash_, buffer_.data(), buffer_.size());
    auto appended = file_.append(buffer_);
    buffer_.clear();
    return appended;
  }

  FileReplacement& file_;
  XXH3_state_t hash_;
  std::string buffer_;
};

// The end of the wire form of an RRset's first record is the address.
template <size_t kSize>
std::optional<std::array<uint8_t, kSize>> addressOf(const records::Entry& entry, dns::RrType type) {
  const records::Entry::Rrset rrset = entry.find(static_cast<uint16_t>(type));
  if (rrset.count == 0 || rrset.wire.size() < kSize) return std::nullopt;
  std::array<uint8_t, kSize> address;
  std::ranges::copy(rrset.wire.last(kSize), address.begin());
  return address;
}

std::span<const uint8_t> memberOf(const records::Entry& entry) {
  const records::Entry::Rrset rrset = entry.find(code(records::kMemberType));
  return rrset.count == 0 ? std::span<const uint8_t>() : rrset.wire.subspan(dns::kRecordHeadSize);
}

SavedName savedName(const records::Entry& entry) {
  const std::span<const uint8_t> member = memberOf(entry);
  SavedName saved{.name = dns::Name::fromWire(entry.name()),
                  .addresses = {},
                  .member = {member.begin(), member.end()},
                  .mod_revision = entry.modRevision()};
  if (const auto v4 = addressOf<4>(entry, dns::RrType::kA)) saved.addresses.ipv4 = IpAddress::v4(*v4);
  if (const auto v6 = addressOf<16>(entry, dns::RrType::kAaaa)) saved.addresses.ipv6 = IpAddress::v6(*v6);
  return saved;
}

void appendEntry(std::string& bytes, const records::Entry& entry) {
  const std::span<const uint8_t> name = entry.name();
  const auto v4 = addressOf<4>(entry, dns::RrType::kA);
  const auto v6 = addressOf<16>(entry, dns::RrType::kAaaa);
  bytes += static_cast<char>(name.size());
  const std::span<const uint8_t> member = memberOf(entry);
  bytes += static_cast<char>((v4 ? kHasIpv4 : 0) | (v6 ? kHasIpv6 : 0) | (member.empty() ? 0 : kIsMember));
  appendNumber(bytes, entry.modRevision());
  const auto append = [&bytes](std::span<const uint8_t> part) { bytes.append(part.begin(), part.end()); };
  append(name);
  if (v4) append(*v4);
  if (v6) append(*v6);
  if (member.empty()) return;
  appendNumber(bytes, static_cast<uint16_t>(member.size()));
  append(member);
}

// Reads along the file; the first thing that is not there ends it for good.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  size_t left() const { return bytes_.size(); }
  std::string_view take(size_t size) {
    if (size > bytes_.size()) ok_ = false;
    if (!ok_) return {};
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  template <typename T>
  T number() {
    T number{};
    if (const std::string_view raw = take(sizeof number); ok_) std::memcpy(&number, raw.data(), sizeof number);
    return number;
  }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

template <size_t kSize>
std::array<uint8_t, kSize> bytes(std::string_view raw) {
  std::array<uint8_t, kSize> result{};
  if (raw.size() == kSize) std::memcpy(result.data(), raw.data(), kSize);
  return result;
}

// False: the file is not what it says. REQUIRES: the hash was right, so only a bug or malice gets here.
bool readEntry(Reader& reader, uint8_t size, SavedName& saved) {
  const auto flags = reader.number<uint8_t>();
  saved.mod_revision = reader.number<int64_t>();
  const std::string_view raw = reader.take(size);
  const std::span<const uint8_t> name(reinterpret_cast<const uint8_t*>(raw.data()), raw.size());
  saved.addresses = {};
  saved.member.clear();
  if ((flags & kHasIpv4) != 0) saved.addresses.ipv4 = IpAddress::v4(bytes<4>(reader.take(4)));
  if ((flags & kHasIpv6) != 0) saved.addresses.ipv6 = IpAddress::v6(bytes<16>(reader.take(16)));
  if ((flags & kIsMember) != 0) {
    const std::string_view member = reader.take(reader.number<uint16_t>());
    saved.member.assign(member.begin(), member.end());
    if (!records::MemberView(saved.member).isValid()) return false;
  }
  if (!reader.ok() || saved.mod_revision <= 0 || size < 2 || dns::uncompressedNameSize(name) != size) return false;
  saved.name = dns::Name::fromWire(name);
  return true;
}

// The whole body; `take` may be empty, to look only.
Result<LoadedNames> readBody(Reader reader, std::string_view pattern,
                             const std::function<void(const SavedName&)>& take) {
  const std::string_view magic = reader.take(kMagic.size());
  if (magic != kMagic && magic != kFormerMagic) return fail("it is not a file of names");
  const auto pattern_size = reader.number<uint64_t>();
  if (reader.take(pattern_size) != pattern || !reader.ok()) return fail("it is of another pattern");
  LoadedNames loaded;
  loaded.written_at_seconds = reader.number<int64_t>();
  SavedName saved;
  for (auto size = reader.number<uint8_t>(); size != 0; size = reader.number<uint8_t>()) {
    if (!readEntry(reader, size, saved)) return fail("it is damaged");
    ++loaded.count;
    if (take) take(saved);
  }
  if (reader.number<uint64_t>() != loaded.count || !reader.ok() || reader.left() != 0) return fail("it is damaged");
  return loaded;
}

// Writes every name of the table; none: the table was built anew meanwhile, and this has to be done again.
Result<std::optional<uint64_t>> writeEntries(Writer& writer, const records::RecordTable& table,
                                             const std::function<bool()>& abandoned) {
  records::EpochDomain::Reader reader(table.epochs());
  records::RecordTable::ScanPosition position;
  uint64_t count = 0;
  while (true) {
    records::RecordTable::ScanStep step{};
    {
      const records::ReadSection section(reader);
      step = table.scan(position, [&](const records::Entry& entry) {
        if (entry.modRevision() <= 0) return;  // not from etcd
        appendEntry(writer.buffer(), entry);
        ++count;
      });
    }
    // Outside of the section: the disk may be slow, or stand still.
    if (step == records::RecordTable::ScanStep::kMoved) return std::nullopt;
    if (abandoned()) return fail("stopping");
    if (auto written = writer.flushIfFull(); !written) return tl::unexpected(written.error());
    if (step == records::RecordTable::ScanStep::kDone) return count;
  }
}

// As writeEntries().
Result<std::optional<size_t>> tryToSave(const std::string& path, std::string_view pattern,
                                        const records::RecordTable& table, int64_t written_at_seconds,
                                        const std::function<bool()>& abandoned) {
  auto file = FileReplacement::begin(path);
  if (!file) return tl::unexpected(file.error());
  Writer writer(*file);
  writer.buffer() += kMagic;
  appendNumber(writer.buffer(), uint64_t{pattern.size()});
  writer.buffer() += pattern;
  appendNumber(writer.buffer(), written_at_seconds);
  const auto count = writeEntries(writer, table, abandoned);
  if (!count) return tl::unexpected(count.error());
  if (!*count) return std::nullopt;
  writer.buffer() += '\0';
  appendNumber(writer.buffer(), **count);
  if (auto written = writer.finish(); !written) return tl::unexpected(written.error());
  if (auto written = file->commit(); !written) return tl::unexpected(written.error());
  return *count;
}

}  // namespace

Result<size_t> saveNames(const std::string& path, std::string_view pattern, const records::RecordStore& store,
                         int64_t written_at_seconds, const std::function<bool()>& abandoned) {
  while (true) {
    const auto saved = tryToSave(path, pattern, store.table(), written_at_seconds, abandoned);
    if (!saved) return tl::unexpected(saved.error());
    if (*saved) return **saved;
  }
}

void forEachName(const records::RecordStore& store, const std::function<void(const SavedName&)>& take) {
  const records::RecordTable& table = store.table();
  records::EpochDomain::Reader reader(table.epochs());
  records::RecordTable::ScanPosition position;
  using Step = records::RecordTable::ScanStep;
  for (Step step = Step::kMore; step != Step::kDone;) {
    std::vector<SavedName> names;  // `take` may be slow
    {
      const records::ReadSection section(reader);
      step = table.scan(position, [&names](const records::Entry& entry) {
        if (entry.modRevision() > 0) names.push_back(savedName(entry));
      });
    }
    for (const SavedName& name : names) take(name);
    if (step == Step::kMoved) position = {};
  }
}

Result<std::optional<LoadedNames>> loadNames(const std::string& path, std::string_view pattern,
                                             const std::function<void(const SavedName&)>& take) {
  const auto bytes = readFile(path, kMaxFileBytes);
  if (!bytes && bytes.error().code == ErrorCode::kNotFound) return std::optional<LoadedNames>();
  if (!bytes) return fail(fmt::format("cannot read {}: {}", path, bytes.error().message));
  const std::string_view all = *bytes;
  const size_t body_size = all.size() < sizeof(uint64_t) ? 0 : all.size() - sizeof(uint64_t);
  Reader trailer(all.substr(body_size));
  if (trailer.number<uint64_t>() != XXH3_64bits(all.data(), body_size) || !trailer.ok())
    return fail(fmt::format("{} is refused: it is cut off or damaged", path));
  const Reader body(all.substr(0, body_size));
  auto loaded = readBody(body, pattern, {});
  if (loaded) loaded = readBody(body, pattern, take);
  if (!loaded) return fail(fmt::format("{} is refused: {}", path, loaded.error().message));
  return std::optional(*loaded);
}

}  // namespace idetcd::naming
