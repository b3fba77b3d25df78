// Writes records behind a question, with names compressed against the question and each other (RFC 1035 §4.1.4). One
// thread.
#pragma once

#include "dns/message_reader.h"
#include "dns/query.h"
#include "dns/wire.h"

namespace idetcd::dns {

// Where names lie in the RDATA of the types whose names may come compressed (RFC 1035 §3.3, RFC 3597 §4): `before`
// bytes, `names` names, `after` bytes.
struct RdataLayout {
  RrType type;
  uint8_t before;
  uint8_t names;
  uint8_t after;
  bool compress;  // ours: the types of RFC 1035 only
};
// Null: no names, or NAPTR's.
const RdataLayout* layoutOf(uint16_t type);

class RecordWriter {
 public:
  // `size`: about how much will be written. `work` is taken from for every name, and must outlive this.
  RecordWriter(const Query& query, size_t size, NameWork& work);

  // Appends `record`, which stands in `message` and has this owner, expanded (kReadSlack bytes behind it are readable).
  // False if the RDATA is not what its type wants, all of it would be too large, or it takes too much work.
  bool append(std::span<const uint8_t> message, const RecordView& record, std::span<const uint8_t> owner, uint32_t ttl);

  std::span<const uint8_t> body() const { return body_; }
  std::span<const uint16_t> ttlOffsets() const { return ttl_offsets_; }

 private:
  static constexpr size_t kMaxRemembered = 64;
  static constexpr size_t kFoldedSize = 4096;

  // A name that can be pointed to: bytes of folded_.
  struct Suffix {
    uint16_t at;
    uint16_t size;
    uint16_t offset;  // in the message
  };

  bool putRdata(std::span<const uint8_t> message, const RecordView& record);
  bool putNaptr(std::span<const uint8_t> message, const RecordView& record);
  bool putExpanded(std::span<const uint8_t> message, size_t& pos, size_t end, bool compress);
  void putName(std::span<const uint8_t> name, bool compress);
  void fold(std::span<const uint8_t> name);
  std::optional<uint16_t> find(size_t pos, size_t size) const;
  void rememberLabels(size_t end, size_t size, size_t offset);
  void put(std::span<const uint8_t> bytes) { body_.insert(body_.end(), bytes.begin(), bytes.end()); }
  void put16(uint16_t value) {
    body_.push_back(static_cast<uint8_t>(value >> 8));
    body_.push_back(static_cast<uint8_t>(value));
  }

  const size_t base_;  // where the first record begins in the message
  NameWork& work_;
  std::vector<uint8_t> body_;
  std::vector<uint16_t> ttl_offsets_;
  std::array<uint8_t, kFoldedSize + kReadSlack> folded_;
  size_t folded_size_ = 0;
  std::array<Suffix, kMaxRemembered> suffixes_;
  size_t suffix_count_ = 0;
};

}  // namespace idetcd::dns
