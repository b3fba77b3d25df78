#include "tsig/signature.h"

#include <openssl/crypto.h>

#include "dns/message_reader.h"

namespace idetcd::tsig {

namespace {

constexpr size_t kFixedSize = 10;      // of a record, behind its owner: type, class, TTL, RDLENGTH
constexpr size_t kTimeSize = 6;
constexpr size_t kCountOffset = 10;    // ARCOUNT
constexpr size_t kLeastMacSize = 10;   // §5.2.2.1

void put16(std::vector<uint8_t>& to, uint16_t value) {
  to.push_back(static_cast<uint8_t>(value >> 8));
  to.push_back(static_cast<uint8_t>(value));
}

void putTime(std::vector<uint8_t>& to, uint64_t seconds) {
  for (size_t i = kTimeSize; i-- > 0;) to.push_back(static_cast<uint8_t>(seconds >> (8 * i)));
}

void putBytes(std::vector<uint8_t>& to, std::span<const uint8_t> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

uint64_t loadTime(const uint8_t* p) { return uint64_t{dns::load16(p)} << 32 | dns::load32(p + 2); }

// The digest's parts (§4.3.3).

void putMac(std::vector<uint8_t>& to, std::span<const uint8_t> mac) {
  if (mac.empty()) return;
  put16(to, static_cast<uint16_t>(mac.size()));
  putBytes(to, mac);
}

// As it was before it was signed: without its TSIG record, with the ID that it had.
void putMessage(std::vector<uint8_t>& to, std::span<const uint8_t> message, bool counts_tsig, uint16_t id) {
  const size_t start = to.size();
  putBytes(to, message);
  dns::store16(&to[start], id);
  if (counts_tsig)
    dns::store16(&to[start + kCountOffset], static_cast<uint16_t>(dns::load16(&to[start + kCountOffset]) - 1));
}

void putTimers(std::vector<uint8_t>& to, const Record& record) {
  putTime(to, record.signed_at);
  put16(to, record.fudge_seconds);
}

void putVariables(std::vector<uint8_t>& to, const Record& record) {
  putBytes(to, record.key.wire());
  put16(to, dns::code(dns::RrClass::kAny));
  put16(to, 0);  // the TTL
  put16(to, 0);
  putBytes(to, record.algorithm.wire());
  putTimers(to, record);
  put16(to, record.error);
  put16(to, static_cast<uint16_t>(record.other.size()));
  putBytes(to, record.other);
}

size_t writeRecord(std::span<uint8_t> buffer, size_t size, const Record& record) {
  std::vector<uint8_t> bytes;
  putBytes(bytes, record.key.wire());
  put16(bytes, dns::code(dns::RrType::kTsig));
  put16(bytes, dns::code(dns::RrClass::kAny));
  put16(bytes, 0);  // the TTL
  put16(bytes, 0);
  const size_t rdata = bytes.size() + 2;
  put16(bytes, 0);
  putBytes(bytes, record.algorithm.wire());
  putTimers(bytes, record);
  put16(bytes, static_cast<uint16_t>(record.mac.size()));
  putBytes(bytes, record.mac);
  put16(bytes, record.original_id);
  put16(bytes, record.error);
  put16(bytes, static_cast<uint16_t>(record.other.size()));
  putBytes(bytes, record.other);
  dns::store16(&bytes[rdata - 2], static_cast<uint16_t>(bytes.size() - rdata));
  assert(buffer.size() - size >= bytes.size());
  std::ranges::copy(bytes, buffer.begin() + static_cast<ptrdiff_t>(size));
  dns::store16(&buffer[kCountOffset], static_cast<uint16_t>(dns::load16(&buffer[kCountOffset]) + 1));
  return size + bytes.size();
}

bool isMac(const Key& key, std::span<const uint8_t> digest, std::span<const uint8_t> mac) {
  std::array<uint8_t, kMaxMacSize> computed;
  computeMac(key, digest, computed);
  return CRYPTO_memcmp(computed.data(), mac.data(), mac.size()) == 0;
}

bool isInTime(const Record& record, uint64_t now) {
  const uint64_t difference = now > record.signed_at ? now - record.signed_at : record.signed_at - now;
  return difference <= record.fudge_seconds;
}

}  // namespace

std::optional<Record> readRecord(std::span<const uint8_t> message, size_t offset) {
  if (offset < dns::kHeaderSize || offset >= message.size()) return std::nullopt;
  Record record{.offset = offset};
  dns::ExpandedName owner;
  const size_t fixed = dns::expandName(message, offset, owner);
  if (fixed == 0 || message.size() - fixed < kFixedSize) return std::nullopt;
  record.key = dns::Name::fromWire(owner.span());
  std::span<const uint8_t> rest = message.subspan(fixed);
  if (dns::load16(rest.data()) != dns::code(dns::RrType::kTsig)) return std::nullopt;
  const size_t size = dns::load16(&rest[kFixedSize - 2]);
  rest = rest.subspan(kFixedSize);
  if (rest.size() < size) return std::nullopt;
  rest = rest.first(size);
  const size_t algorithm = dns::uncompressedNameSize(rest);
  if (algorithm == 0) return std::nullopt;
  record.algorithm = dns::Name::fromWire(rest.first(algorithm));
  rest = rest.subspan(algorithm);
  if (rest.size() < kTimeSize + 4) return std::nullopt;
  record.signed_at = loadTime(rest.data());
  record.fudge_seconds = dns::load16(&rest[kTimeSize]);
  const size_t mac = dns::load16(&rest[kTimeSize + 2]);
  rest = rest.subspan(kTimeSize + 4);
  if (rest.size() < mac + 6) return std::nullopt;
  record.mac.assign(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(mac));
  rest = rest.subspan(mac);
  record.original_id = dns::load16(rest.data());
  record.error = dns::load16(&rest[2]);
  const size_t other = dns::load16(&rest[4]);
  rest = rest.subspan(6);
  if (rest.size() != other) return std::nullopt;
  record.other.assign(rest.begin(), rest.end());
  return record;
}

size_t findRecord(std::span<const uint8_t> message) {
  if (message.size() < dns::kHeaderSize) return 0;
  size_t begin = dns::kHeaderSize;
  for (unsigned left = dns::HeaderView(message.data()).questions(); left > 0; --left) {
    begin = dns::skipName(message.data(), message.size(), begin);
    if (begin == 0 || message.size() - begin < 4) return 0;
    begin += 4;
  }
  dns::MessageReader reader(message, begin);
  dns::RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    const bool is_tsig = record.section == dns::Section::kAdditional && dns::isType(record.type, dns::RrType::kTsig);
    if (is_tsig && record.is_last) return record.owner;
  }
  return 0;
}

QueryCheck checkQuery(std::span<const uint8_t> query, size_t offset, const Keyring& keys, uint64_t now) {
  QueryCheck check;
  const auto refuse = [&check](TsigError error) {
    check.kind = QueryCheck::Kind::kRefused;
    check.error = error;
    return check;
  };
  auto record = readRecord(query, offset);
  if (!record) return check;
  check.record = std::move(*record);
  const Key* const key = keys.find(check.record.key);
  if (key == nullptr || !(nameOf(key->algorithm) == check.record.algorithm)) return refuse(TsigError::kBadKey);
  check.key = key;
  const size_t whole = macSize(key->algorithm);
  const size_t size = check.record.mac.size();
  if (size > whole || size < std::max(kLeastMacSize, whole / 2)) return check;
  std::vector<uint8_t> digest;
  putMessage(digest, query.first(offset), true, check.record.original_id);
  putVariables(digest, check.record);
  if (!isMac(*key, digest, check.record.mac)) return refuse(TsigError::kBadSig);
  if (!isInTime(check.record, now)) return refuse(TsigError::kBadTime);
  if (size < whole) return refuse(TsigError::kBadTrunc);
  check.kind = QueryCheck::Kind::kGood;
  return check;
}

size_t Signer::recordSize(const Key& key) {
  return key.name.size() + kFixedSize + nameOf(key.algorithm).size() + kTimeSize + 4 + macSize(key.algorithm) + 6;
}

size_t Signer::sign(std::span<uint8_t> buffer, size_t size, uint64_t now) {
  return append(buffer, size, {.signed_at = now});
}

size_t Signer::signError(std::span<uint8_t> buffer, size_t size, TsigError error, const Record& query, uint64_t now) {
  Record record{.signed_at = now, .error = dns::code(error)};
  if (error == TsigError::kBadTime) {
    record.signed_at = query.signed_at;
    putTime(record.other, now);
  }
  return append(buffer, size, std::move(record));
}

size_t Signer::append(std::span<uint8_t> buffer, size_t size, Record record) {
  record.key = key_.name;
  record.algorithm = nameOf(key_.algorithm);
  record.fudge_seconds = kFudgeSeconds;
  record.original_id = dns::load16(buffer.data());
  std::vector<uint8_t> digest;
  digest.reserve(size + 2 * dns::kMaxNameLength);
  putMac(digest, mac_);
  putMessage(digest, buffer.first(size), false, record.original_id);
  is_first_ ? putVariables(digest, record) : putTimers(digest, record);
  is_first_ = false;
  std::array<uint8_t, kMaxMacSize> mac;
  computeMac(key_, digest, mac);
  mac_.assign(mac.begin(), mac.begin() + static_cast<ptrdiff_t>(macSize(key_.algorithm)));
  record.mac = mac_;
  return writeRecord(buffer, size, record);
}

size_t appendUnsigned(std::span<uint8_t> buffer, size_t size, TsigError error, const Record& query) {
  Record record = query;
  record.mac.clear();
  record.other.clear();
  record.error = dns::code(error);
  record.original_id = dns::load16(buffer.data());
  return writeRecord(buffer, size, record);
}

Result<void> Verifier::verify(std::span<const uint8_t> message, size_t offset, uint64_t now) {
  if (digest_.empty()) putMac(digest_, mac_);
  if (offset == 0) {
    if (is_first_) return fail("the answer is not signed");
    if (++unsigned_ > kMaxUnsigned) return fail("too many messages in a row are not signed");
    putBytes(digest_, message);
    return {};
  }
  const auto record = readRecord(message, offset);
  if (!record) return fail("the TSIG record of the answer cannot be read");
  if (!(record->key == key_.name) || !(record->algorithm == nameOf(key_.algorithm)))
    return fail("the answer is signed with another key");
  if (record->mac.size() != macSize(key_.algorithm))
    return fail(fmt::format("the answer is not signed with a whole MAC (TSIG error {})", record->error));
  putMessage(digest_, message.first(offset), true, record->original_id);
  is_first_ ? putVariables(digest_, *record) : putTimers(digest_, *record);
  if (!isMac(key_, digest_, record->mac)) return fail("the signature of the answer is wrong");
  if (!isInTime(*record, now) && record->error != dns::code(TsigError::kBadTime))
    return fail("the answer was signed at another time than it is here");
  digest_.clear();
  mac_ = record->mac;
  unsigned_ = 0;
  is_first_ = false;
  return {};
}

}  // namespace idetcd::tsig
