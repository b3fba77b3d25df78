// A query as a client would send it, in a buffer of the size that the datapath has, and a look at its response.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dns/query.h"
#include "dns/wire.h"
#include "resolve/request.h"

namespace idetcd {

class Message {
 public:
  static constexpr HashSeed kSeed = 0x1234;

  Message(std::string_view name, uint16_t qtype, std::optional<uint16_t> edns_payload = std::nullopt,
          uint16_t qclass = 1) {
    put16(0xbeef);
    put16(dns::kFlagRd);
    for (const uint16_t count : {1, 0, 0, edns_payload ? 1 : 0}) put16(count);
    const auto wire = dns::Name::parse(name).value();
    for (const uint8_t byte : wire.wire()) bytes_[size_++] = byte;
    put16(qtype);
    put16(qclass);
    if (!edns_payload) return;
    bytes_[size_++] = 0;
    put16(41);
    put16(*edns_payload);
    for (int i = 0; i < 3; ++i) put16(0);
  }

  uint8_t* data() { return bytes_.data(); }
  size_t size() const { return size_; }

  // --- of the response, once it is written over the query ---
  void setResponse(size_t size) { size_ = size; }
  uint16_t rcode() const { return dns::load16(&bytes_[2]) & dns::kRcodeMask; }
  bool flag(uint16_t flag) const { return (dns::load16(&bytes_[2]) & flag) != 0; }
  uint16_t answers() const { return dns::load16(&bytes_[6]); }
  uint16_t authorities() const { return dns::load16(&bytes_[8]); }
  uint16_t additionals() const { return dns::load16(&bytes_[10]); }

  struct Record {
    std::string owner;
    uint16_t type = 0;
    uint32_t ttl = 0;
    size_t rdata = 0;  // offset
    size_t rdata_size = 0;
  };
  // Every record behind the question, in order.
  std::vector<Record> records() const {
    std::vector<Record> records;
    size_t pos = dns::kHeaderSize;
    nameAt(pos);
    pos += 4;
    const size_t count = size_t{answers()} + authorities() + additionals();
    for (size_t i = 0; i < count; ++i) {
      Record record;
      record.owner = nameAt(pos);
      record.type = dns::load16(&bytes_[pos]);
      record.ttl = dns::load32(&bytes_[pos + 4]);
      record.rdata_size = dns::load16(&bytes_[pos + 8]);
      record.rdata = pos + 10;
      pos = record.rdata + record.rdata_size;
      records.push_back(record);
    }
    if (pos != size_) records.clear();
    return records;
  }
  std::vector<uint8_t> rdata(const Record& record) const {
    return {&bytes_[record.rdata], &bytes_[record.rdata] + record.rdata_size};
  }
  // The name at `pos`, pointers followed; `pos` goes behind it.
  std::string nameAt(size_t& pos) const {
    std::string text;
    size_t at = pos;
    bool jumped = false;
    while (bytes_[at] != 0) {
      if (bytes_[at] >= 0xc0) {
        if (!jumped) pos = at + 2;
        jumped = true;
        at = dns::load16(&bytes_[at]) & 0x3fffu;
        continue;
      }
      text.append(reinterpret_cast<const char*>(&bytes_[at + 1]), bytes_[at]);
      text += '.';
      at += bytes_[at] + 1u;
    }
    if (!jumped) pos = at + 1;
    return text.empty() ? "." : text;
  }

 private:
  void put16(int value) {
    dns::store16(&bytes_[size_], static_cast<uint16_t>(value));
    size_ += 2;
  }

  std::array<uint8_t, 4096 + dns::kReadSlack> bytes_{};
  size_t size_ = 0;
};

}  // namespace idetcd
