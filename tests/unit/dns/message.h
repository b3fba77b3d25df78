// Messages for tests, written and read without the code under test: bytes as std::string, names uncompressed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dns/types.h"

namespace idetcd::dns::test {

// --- writing ---

inline std::string be16(unsigned value) { return {static_cast<char>(value >> 8), static_cast<char>(value)}; }
inline std::string be32(uint32_t value) { return be16(value >> 16) + be16(value & 0xffff); }

struct Counts {
  unsigned questions = 1;
  unsigned answers = 0;
  unsigned authorities = 0;
  unsigned additionals = 0;
};
inline std::string header(unsigned id, unsigned flags, Counts counts) {
  return be16(id) + be16(flags) + be16(counts.questions) + be16(counts.answers) + be16(counts.authorities) +
         be16(counts.additionals);
}

inline std::string label(std::string_view bytes) { return static_cast<char>(bytes.size()) + std::string(bytes); }

// "a.b." as wire form, bytes as they are; "." is the root. No escapes.
inline std::string wireName(std::string_view text) {
  std::string wire;
  if (text != ".") {
    for (size_t dot; (dot = text.find('.')) != std::string_view::npos; text.remove_prefix(dot + 1)) {
      wire += label(text.substr(0, dot));
    }
  }
  return wire + '\0';
}

// A name of exactly `size` bytes, 3 <= size: labels of 63 as far as they go.
inline std::string wireNameOfSize(size_t size) {
  std::string wire;
  size_t left = size - 1;
  while (left > 0) {
    const size_t step = left == 65 ? 63 : left > 64 ? 64 : left;  // no remainder of one byte
    wire += label(std::string(step - 1, 'x'));
    left -= step;
  }
  return wire + '\0';
}

inline std::string question(std::string_view wire_name, unsigned type, unsigned klass = 1) {
  return std::string(wire_name) + be16(type) + be16(klass);
}
inline std::string record(std::string_view owner, unsigned type, unsigned klass, uint32_t ttl, std::string_view rdata) {
  return std::string(owner) + be16(type) + be16(klass) + be32(ttl) + be16(static_cast<unsigned>(rdata.size())) +
         std::string(rdata);
}
inline std::string option(unsigned code, std::string_view data) {
  return be16(code) + be16(static_cast<unsigned>(data.size())) + std::string(data);
}
// `ttl`: extended rcode, version, flags (DO is 0x8000).
inline std::string opt(unsigned payload, uint32_t ttl = 0, std::string_view options = {}) {
  return record(std::string_view("\0", 1), code(RrType::kOpt), payload, ttl, options);
}

inline std::span<const uint8_t> bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::string text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// --- reading ---

struct ReadRecord {
  std::string owner;  // uncompressed, case kept
  unsigned type = 0;
  unsigned klass = 0;
  uint32_t ttl = 0;
  std::string rdata;
};

struct ReadMessage {
  unsigned id = 0;
  unsigned flags = 0;
  std::vector<std::string> questions;  // name, type and class as they were
  std::vector<ReadRecord> answers;
  std::vector<ReadRecord> authorities;
  std::vector<ReadRecord> additionals;

  unsigned rcode() const { return flags & 0xf; }
  bool has(unsigned flag) const { return (flags & flag) != 0; }
  const ReadRecord* opt() const {
    for (const ReadRecord& record : additionals) {
      if (record.type == code(RrType::kOpt)) return &record;
    }
    return nullptr;
  }
};

// Strict: nothing unless each count is met, each name is whole, and nothing is left over.
class MessageReader {
 public:
  static std::optional<ReadMessage> read(std::span<const uint8_t> bytes) {
    MessageReader reader(bytes);
    ReadMessage message;
    if (!reader.readAll(message)) return std::nullopt;
    return message;
  }

 private:
  explicit MessageReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool readAll(ReadMessage& message) {
    unsigned counts[4];
    if (!number(message.id, 2) || !number(message.flags, 2)) return false;
    for (unsigned& count : counts) {
      if (!number(count, 2)) return false;
    }
    for (unsigned i = 0; i < counts[0]; ++i) {
      unsigned type = 0, klass = 0;
      std::string qname;
      if (!name(qname) || !number(type, 2) || !number(klass, 2)) return false;
      message.questions.push_back(qname + be16(type) + be16(klass));
    }
    return records(counts[1], message.answers) && records(counts[2], message.authorities) &&
           records(counts[3], message.additionals) && pos_ == bytes_.size();
  }

  bool records(unsigned count, std::vector<ReadRecord>& section) {
    for (unsigned i = 0; i < count; ++i) {
      ReadRecord& record = section.emplace_back();
      unsigned ttl = 0, size = 0;
      if (!name(record.owner) || !number(record.type, 2) || !number(record.klass, 2) || !number(ttl, 4)) return false;
      if (!number(size, 2) || bytes_.size() - pos_ < size) return false;
      record.ttl = ttl;
      record.rdata = text(bytes_.subspan(pos_, size));
      pos_ += size;
    }
    return true;
  }

  bool number(unsigned& value, int bytes) {
    value = 0;
    for (int i = 0; i < bytes; ++i) {
      if (pos_ == bytes_.size()) return false;
      value = value << 8 | bytes_[pos_++];
    }
    return true;
  }

  bool name(std::string& wire) {
    size_t at = pos_;
    size_t lowest = pos_;  // each pointer must lead further back
    bool jumped = false;
    while (at < bytes_.size()) {
      const size_t length = bytes_[at];
      if (length >= 0xc0) {
        if (bytes_.size() - at < 2) return false;
        const size_t target = (length & 0x3f) << 8 | bytes_[at + 1];
        if (!jumped) pos_ = at + 2;
        jumped = true;
        if (target < 12 || target >= lowest) return false;
        at = lowest = target;
        continue;
      }
      if (length > 63 || bytes_.size() - at < length + 1) return false;
      wire += text(bytes_.subspan(at, length + 1));
      at += length + 1;
      if (length > 0) continue;
      if (!jumped) pos_ = at;
      return wire.size() <= 255;
    }
    return false;
  }

  std::span<const uint8_t> bytes_;
  size_t pos_ = 0;
};

}  // namespace idetcd::dns::test
