#include "cluster/saved_names.h"

#include <cstring>
#include <ctime>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"
#include "cluster/file.h"
#include "dns/wire.h"
#include "records/epoch.h"

namespace idetcd::cluster {
namespace {

constexpr std::string_view kMagic = "idetcdN1";
constexpr size_t kMaxFileBytes = size_t{2} << 30;  // over ten million names
constexpr uint8_t kHasIpv4 = 1;
constexpr uint8_t kHasIpv6 = 2;

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

// The addresses of an RRset's first record: the end of its wire form is the address.
template <size_t kSize>
bool appendAddress(std::string& bytes, const records::Entry::Rrset& rrset) {
  if (rrset.count == 0 || rrset.wire.size() < kSize) return false;
  bytes.append(reinterpret_cast<const char*>(rrset.wire.data() + rrset.wire.size() - kSize), kSize);
  return true;
}

void appendEntry(std::string& bytes, const records::Entry& entry) {
  const std::span<const uint8_t> name = entry.name();
  bytes += static_cast<char>(name.size());
  const size_t flags_at = bytes.size();
  bytes += '\0';
  appendNumber(bytes, entry.modRevision());
  bytes.append(reinterpret_cast<const char*>(name.data()), name.size());
  uint8_t flags = 0;
  if (appendAddress<4>(bytes, entry.find(static_cast<uint16_t>(dns::RrType::kA)))) flags |= kHasIpv4;
  if (appendAddress<16>(bytes, entry.find(static_cast<uint16_t>(dns::RrType::kAaaa)))) flags |= kHasIpv6;
  bytes[flags_at] = static_cast<char>(flags);
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
std::array<uint8_t, kSize> octets(std::string_view raw) {
  std::array<uint8_t, kSize> result{};
  if (raw.size() == kSize) std::memcpy(result.data(), raw.data(), kSize);
  return result;
}

// Plausibility of the wire form: labels that end where the name ends.
bool isWireName(std::string_view raw) {
  if (raw.size() < 2 || raw.size() > dns::kMaxNameLength) return false;
  size_t at = 0;
  while (at < raw.size() && raw[at] != 0) {
    const auto length = static_cast<uint8_t>(raw[at]);
    if (length > 63) return false;
    at += size_t{1} + length;
  }
  return at + 1 == raw.size();
}

// False: the file is not what it says. REQUIRES: the hash was right, so only a bug or malice gets here.
bool readEntry(Reader& reader, uint8_t size, SavedName& saved) {
  const auto flags = reader.number<uint8_t>();
  saved.mod_revision = reader.number<int64_t>();
  const std::string_view name = reader.take(size);
  saved.addresses = {};
  if ((flags & kHasIpv4) != 0) saved.addresses.ipv4 = IpAddress::v4(octets<4>(reader.take(4)));
  if ((flags & kHasIpv6) != 0) saved.addresses.ipv6 = IpAddress::v6(octets<16>(reader.take(16)));
  if (!reader.ok() || saved.mod_revision <= 0 || !isWireName(name)) return false;
  saved.name = dns::Name::fromWire({reinterpret_cast<const uint8_t*>(name.data()), name.size()});
  return true;
}

// The whole body; `take` may be empty, to look only.
Result<LoadedNames> readBody(Reader reader, std::string_view pattern,
                             const std::function<void(const SavedName&)>& take) {
  if (reader.take(kMagic.size()) != kMagic) return fail("it is not a file of names");
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

}  // namespace

Result<size_t> saveNames(const std::string& path, std::string_view pattern, const records::RecordStore& store,
                         const std::function<bool()>& abandoned) {
  auto file = FileReplacement::begin(path);
  if (!file) return tl::unexpected(file.error());
  Writer writer(*file);
  writer.buffer() += kMagic;
  appendNumber(writer.buffer(), uint64_t{pattern.size()});
  writer.buffer() += pattern;
  appendNumber(writer.buffer(), int64_t{std::time(nullptr)});

  uint64_t count = 0;
  Result<void> written;
  {
    records::EpochDomain::Reader reader(store.table().epochs());
    const records::ReadSection section(reader);
    store.table().scan([&](const records::Entry& entry) {
      if (entry.modRevision() <= 0) return true;  // not from etcd
      appendEntry(writer.buffer(), entry);
      ++count;
      written = writer.flushIfFull();
      constexpr uint64_t kAskEvery = 1024;
      if (count % kAskEvery == 0 && abandoned()) written = fail("stopping");
      return written.has_value();
    });
  }
  if (!written) return tl::unexpected(written.error());
  writer.buffer() += '\0';
  appendNumber(writer.buffer(), count);
  if (written = writer.finish(); !written) return tl::unexpected(written.error());
  if (written = file->commit(); !written) return tl::unexpected(written.error());
  return count;
}

Result<std::optional<LoadedNames>> loadNames(const std::string& path, std::string_view pattern,
                                             const std::function<void(const SavedName&)>& take) {
  const auto bytes = readFile(path, kMaxFileBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  if (!*bytes) return std::optional<LoadedNames>();
  const std::string_view all = **bytes;
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

}  // namespace idetcd::cluster
